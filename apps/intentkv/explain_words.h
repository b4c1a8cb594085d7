// From an audit's tokens to the words that a person reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit_json.h"

namespace ikv {

/// A run of an audited transcript that reads as one word.
struct ReadWord {
  std::string text;
  int32_t begin = 0;
  int32_t end = 0;  ///< tokens [begin, end)
  int32_t message = -1;
  Role role = Role::kUser;
  double share = 0;  ///< the most that any of its tokens was read
};

/// Where the newest user or tool message begins that this reply answers; the number of prompt
/// tokens if there is none.
int32_t current_span_begin(const TurnAudit& audit);

/// Words of message contents before the current span that were read most, best first. What level 2
/// reads by rule (first and last tokens) and words without a letter or digit are left out; equal
/// words of one message appear once. Needs the record's texts.
std::vector<ReadWord> most_read_words(const AuditRecord& record, size_t most);

}  // namespace ikv
