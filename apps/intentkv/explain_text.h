// An audited turn as text for people: figures, reasons, and the transcript with its marks.
#pragma once

#include <string>
#include <vector>

#include "audit_json.h"
#include "intentkv/message.h"

namespace ikv {

/// How an audit is shown.
struct ExplainStyle {
  bool colour = false;
  double read_above = 0.5;     ///< a token read at least this often is marked as kept
  double pruned_below = 0.05;  ///< a token read less often is marked as pruned
};

/// Budgets, figures and reasons of the turn.
std::string explain_figures(const TurnAudit& audit);

/// One line for each message: how much of it was read, wanted and hot.
std::string explain_messages(const TurnAudit& audit);

/// What was read most of what stands further back. Empty if the record has no texts.
std::string explain_words(const AuditRecord& record, size_t most);

/// The transcript line by line, each with its share in front. `before`: the session's turn before
/// this one, for what came back; may be null. Needs the record's texts.
std::string explain_transcript(const AuditRecord& record, const AuditRecord* before,
                               const ExplainStyle& style);

/// The same by whole messages, for a record without texts.
std::string explain_conversation(const TurnAudit& audit, const std::vector<Message>& messages,
                                 const ExplainStyle& style);

}  // namespace ikv
