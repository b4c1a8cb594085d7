// Budgets as users write them: 12%, 900, 256MiB, mass=0.98.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ikv {

/// How many cached positions attention may read in one step for one KV head (level 2).
struct AttendBudget {
  enum class Kind : uint8_t {
    kAll,     ///< everything; level 2 is off
    kShare,   ///< a share of all cached positions
    kTokens,  ///< a number of positions
    kMass,    ///< the smallest set with this share of the estimated mass, at most `share`
  };
  Kind kind = Kind::kAll;
  float share = 1.0f;            ///< kShare; for kMass the most that may be read
  int32_t tokens = 0;            ///< kTokens
  float mass = 1.0f;             ///< kMass
  int32_t min_tokens = 512;      ///< floor: shorter histories are not pruned
  int32_t sink_tokens = 32;      ///< first positions, always read
  int32_t recent_tokens = 128;   ///< last positions, always read
  bool force_selection = false;  ///< select even when everything fits, for tests
};

/// Positions that may be read of `num_cached`, forced ones included: the budget rounded up, not
/// less than the floor, not more than all.
int32_t attend_tokens(const AttendBudget& budget, int32_t num_cached);

/// "all", "100%", "12%", "12.5 %", "900", "mass=0.98". Keeps the other fields of `defaults`.
/// Errors: kInvalidArgument saying what is wrong: zero, negative, more than 100 %, not a number,
/// unit.
Result<AttendBudget> parse_attend_budget(std::string_view text, const AttendBudget& defaults = {});

/// Checks floor and forced tokens against the budget. kInvalidArgument with both figures when the
/// forced tokens alone exceed it.
Status check_attend_budget(const AttendBudget& budget);

/// How much of a session's cache may stand in its hot format (level 1).
struct ResidentBudget {
  enum class Kind : uint8_t { kAll, kShare, kBytes };
  Kind kind = Kind::kAll;
  float share = 1.0f;
  uint64_t bytes = 0;
};

/// "all", "100%", "25%", "256MiB". Errors as parse_attend_budget().
Result<ResidentBudget> parse_resident_budget(std::string_view text);

/// "12.5%", "900", "mass=0.98", "all": what the parser reads.
std::string to_string(const AttendBudget& budget);
std::string to_string(const ResidentBudget& budget);

}  // namespace ikv
