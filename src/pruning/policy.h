// Pruning policies: pure functions from estimated attention mass, pins and a budget to what is
// kept.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace ikv {

enum class PolicyKind : uint8_t {
  kTopK,       ///< most massive units until the budget is full
  kThreshold,  ///< units of at least a given mass, within the budget
  kMass,       ///< the smallest set that holds a given share of the mass, within the budget
  kLayered,    ///< the recent window whole, `inner` on the rest (default)
};

/// Why a unit was kept or left out; the audit prints it.
enum class KeepReason : uint8_t { kPruned, kPin, kRecent, kScore, kHysteresis };

/// "pruned", "pin", "recent", "score", "hysteresis".
std::string_view keep_reason_name(KeepReason reason);

/// A policy with its parameters.
struct PolicyConfig {
  PolicyKind kind = PolicyKind::kLayered;
  PolicyKind inner = PolicyKind::kTopK;  ///< what kLayered runs on the rest; not kLayered
  float threshold = 0.0f;  ///< kThreshold: a unit's mass per token, in multiples of the mean
  float adaptive = -1.0f;  ///< kThreshold: if >= 0, threshold = mean + adaptive·stddev instead
  float mass = 0.98f;      ///< kMass: share to hold, 0..1
  int32_t recent_tokens = 128;  ///< kLayered: the window
  /// A unit kept last time stays unless another's mass per token is greater by this factor.
  float hysteresis = 1.0f;
};

/// What a policy decides on: units in transcript order (tokens, pages, sentences or messages).
struct PolicyInput {
  std::span<const float> mass;           ///< estimated mass of each unit, >= 0
  std::span<const int32_t> num_tokens;   ///< size of each unit, > 0
  std::span<const uint8_t> pinned;       ///< 1: must be kept; may be empty
  std::span<const uint8_t> kept_before;  ///< 1: kept by the last plan; may be empty
  int64_t budget_tokens = 0;             ///< realised share of all tokens, pins included
};

/// The decision.
struct PolicyResult {
  std::vector<KeepReason> reason;  ///< per unit; kPruned: left out
  int64_t kept_tokens = 0;
  float kept_mass = 0.0f;  ///< share of all mass that is kept
};

/// Runs a policy. Deterministic; ties go to the later unit. Errors: kInvalidArgument for parameters
/// out of range and when the pins alone exceed the budget (with both figures). O(n log n).
Result<PolicyResult> run_policy(const PolicyConfig& config, const PolicyInput& input);

}  // namespace ikv
