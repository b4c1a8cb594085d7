// One sequence's part of a step.
#pragma once

#include <cstdint>
#include <span>

#include "core/ids.h"
#include "engine/audit_counter.h"
#include "engine/kv_policy.h"
#include "intent/query_collector.h"
#include "kv/kv_pool_types.h"

namespace ikv {

/// Tokens of one sequence that a step evaluates.
struct StepRows {
  KvSequenceId sequence = 0;
  std::span<const TokenId> tokens;       ///< evaluated at positions length(sequence)...
  bool decode = false;                   ///< kind of row: decode kernels, or prefill's
  int32_t num_logit_rows = 0;            ///< logits are wanted of the last so many tokens
  const AttendPolicy* attend = nullptr;  ///< level 2 for decode rows; null: read everything
  AttendStats* stats = nullptr;          ///< where level 2 adds what it did
  AttendCounter* counter = nullptr;      ///< decode rows: counts what they read; null: nobody asks
  /// Prefill rows: attention mass by page of the last so many rows (the span's last queries) is
  /// wanted; see PoolAttention::page_mass().
  int32_t num_mass_rows = 0;
  QueryCollector* queries = nullptr;  ///< takes the last rows' queries before RoPE; may be null
};

}  // namespace ikv
