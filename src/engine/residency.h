// Level 1: which sealed pages stay in their hot format, which are demoted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "intentkv/audit.h"
#include "kv/kv_pool.h"
#include "pruning/budget.h"

namespace ikv {

/// Attention mass by page: [page index of a block][block], summed over the span's last queries and
/// a KV head's group. Lists may be shorter than the sequence; what is missing counts as 0.
using PageMass = std::vector<std::vector<float>>;

/// What level 1 did; pages counted over layers and KV heads.
struct ResidencyStats {
  uint64_t decisions = 0;
  uint64_t demoted_pages = 0;
  uint64_t hot_pages = 0;  ///< sealed pages in the hot format after the last decision
  uint64_t cold_pages = 0;
  uint64_t pinned_pages = 0;  ///< hot by the client's pins alone, at the last decision
  double hot_mass = 0;        ///< share of the intent's mass found hot at the last decision, 0..1
};

/// Pages of one layer and KV head that the budget lets stay hot, of `num_sealed`.
int64_t hot_pages_allowed(const KvPool& pool, const ResidentBudget& budget, int layer,
                          int64_t num_sealed);

/// Demotes to int4 what the intent wants least until at most the budget's share of each layer's and
/// KV head's sealed pages is hot. The sink's page and the last 128 tokens stay hot. Demotion is
/// one-way: a page demoted at an earlier turn stays so. Errors: kOutOfMemory leaves the rest as it
/// is. `reasons`, unless null, gets each sealed block's. `client_pins`: 1 for blocks that stay as
/// they are; shorter than the sequence: 0.
Status demote_pages(KvPool& pool, KvSequenceId sequence, const PageMass& mass,
                    const ResidentBudget& budget, ResidencyStats& stats,
                    std::vector<AuditReasons>* reasons = nullptr,
                    std::span<const uint8_t> client_pins = {});

}  // namespace ikv
