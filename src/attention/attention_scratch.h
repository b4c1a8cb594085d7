// What AttentionScratch holds. Internal to attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/decode_plan.h"
#include "attention/paged_attention.h"
#include "attention/prefill_blocked.h"

namespace ikv {

struct AttentionScratch::Impl {
  struct Run {
    uint32_t job, run;
  };

  void reserve(size_t num_plans, size_t num_threads, size_t group) {
    if (plans.size() < num_plans) plans.resize(num_plans);
    if (buffers.size() < num_threads) buffers.resize(num_threads);
    for (RunBuffers& b : buffers) b.logits.resize(group * kRunCapacity);
  }

  std::vector<DecodePlan> plans;
  std::vector<Run> runs;
  std::vector<RunBuffers> buffers;       ///< by thread
  std::vector<BlockedPrefill> prefills;  ///< by thread
};

}  // namespace ikv
