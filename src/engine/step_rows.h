// One sequence's part of a step.
#pragma once

#include <cstdint>
#include <span>

#include "core/ids.h"
#include "kv/kv_pool_types.h"

namespace ikv {

/// Tokens of one sequence that a step evaluates.
struct StepRows {
  KvSequenceId sequence = 0;
  std::span<const TokenId> tokens;  ///< evaluated at positions length(sequence)...
  bool decode = false;              ///< kind of row: decode kernels, or prefill's
  int32_t num_logit_rows = 0;       ///< logits are wanted of the last so many tokens
};

}  // namespace ikv
