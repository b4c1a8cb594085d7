// Which rows the next step computes: continuous batching of prefill chunks and decodes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ikv {

/// What the scheduler needs to know of one running generation.
struct SchedulableRequest {
  int32_t num_prompt_tokens_left = 0;  ///< tokens that still wait for prefill
  bool decoding = false;               ///< one row a step; then num_prompt_tokens_left is 0
};

/// Tokens that one request gets in a step; 0: not in this step.
struct StepPlan {
  std::vector<int32_t> num_tokens;  ///< one per request, in the given order
  int32_t total_tokens = 0;
};

/// Decides on each step's rows. Every decoding request gets its row in every step; what is left of
/// the budget is shared equally between the requests in prefill, so that a long prompt neither
/// starves other prompts nor stops running replies. The place where leftovers go rotates. Since a
/// row's result does not depend on its chunk, any split is correct.
class StepScheduler {
 public:
  /// `chunk_tokens`: most prompt tokens in one step, over all requests.
  explicit StepScheduler(int32_t chunk_tokens) : chunk_tokens_(chunk_tokens) {}

  StepPlan plan(std::span<const SchedulableRequest> requests);

 private:
  int32_t chunk_tokens_;
  size_t rotation_ = 0;
};

}  // namespace ikv
