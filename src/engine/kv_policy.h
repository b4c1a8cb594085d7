// What is kept, attended and demoted of a sequence: the choice that a request makes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "pruning/budget.h"

namespace ikv {

/// What level 2 ranks tokens by. kCode is ours; the others are for comparison.
enum class TokenScorer : uint8_t { kCode, kExact, kRandom, kRecent };

/// "code", "exact", "random", "recent".
std::string_view token_scorer_name(TokenScorer scorer);
Result<TokenScorer> parse_token_scorer(std::string_view name);

/// Level 2: which tokens one step reads.
struct AttendPolicy {
  AttendBudget budget;
  TokenScorer scorer = TokenScorer::kCode;
  /// Candidates that the codes pick, in multiples of the budget, for exact ranking; 1: codes alone.
  float candidates = 2.0f;
};

/// Both levels of one sequence. Equal policies have equal ids: keys and values computed under one
/// policy are not given to a sequence of another.
struct KvPolicy {
  AttendPolicy attend;
  ResidentBudget resident;

  bool prunes() const {
    return attend.budget.kind != AttendBudget::Kind::kAll || attend.budget.force_selection;
  }
  bool demotes() const { return resident.kind != ResidentBudget::Kind::kAll; }
  /// 0 when nothing is pruned or demoted.
  uint64_t id() const;
};

/// What level 2 did for one sequence; sums over steps, layers and KV heads.
struct AttendStats {
  uint64_t selections = 0;  ///< times that tokens were chosen
  uint64_t cached = 0;      ///< positions that were there, summed over selections
  uint64_t scanned = 0;     ///< positions scored by codes
  uint64_t ranked = 0;      ///< positions scored exactly
  uint64_t attended = 0;    ///< positions read by attention
  uint64_t bytes_read = 0;  ///< codes, keys and values
  uint64_t probes = 0;      ///< selections whose missed mass was measured
  double missed_mass = 0;   ///< exact attention mass left out, summed over probes

  AttendStats& operator+=(const AttendStats& other);
};

}  // namespace ikv
