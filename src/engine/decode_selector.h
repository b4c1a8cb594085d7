// Level 2: which tokens one decode row reads, and the attention over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/paged_attention.h"
#include "base/thread_pool.h"
#include "core/attention_spec.h"
#include "engine/audit_counter.h"
#include "engine/kv_policy.h"
#include "kv/key_codes.h"

namespace ikv {

/// One decode row of one KV head that may be pruned.
struct SelectJob {
  DecodeJob decode;                         ///< all its pages, the own one last
  std::span<const std::byte* const> codes;  ///< key codes of each page
  std::span<const float> codebook;          ///< of this layer and head
  const AttendPolicy* policy = nullptr;
  uint64_t seed = 0;                 ///< kRandom: of this layer, head and position
  bool probe = false;                ///< measure the mass left out, by exact scores of everything
  AttendCounter* counter = nullptr;  ///< told of what is read; may be null
  AttendStats stats;                 ///< out
};

/// Chooses in two stages and attends: codes of all tokens pick candidates, exact logits rank them,
/// the best are read exactly (design: section 5, level 2). The sink and the most recent tokens are
/// always among them. A job's result depends on the job alone. Engine's thread only.
class DecodeSelector {
 public:
  explicit DecodeSelector(ThreadPool& threads);
  ~DecodeSelector();

  /// Whether the policy leaves anything out at this length; if not, dense attention serves.
  static bool selects(const AttendPolicy& policy, const AttentionSpec& spec, LogicalPos position);

  /// First position that a layer's window lets a row at `position` see.
  static LogicalPos first_visible(const AttentionSpec& spec, LogicalPos position);

  /// Runs all jobs of one layer.
  void attend(const AttentionSpec& spec, std::span<SelectJob> jobs);

 private:
  struct Scratch;
  void run(const AttentionSpec& spec, SelectJob& job, Scratch& scratch) const;
  void score_all(const AttentionSpec& spec, const SelectJob& job, size_t size,
                 Scratch& scratch) const;
  double missed_mass(const AttentionSpec& spec, const SelectJob& job, size_t size,
                     std::span<const PageEntry> read, Scratch& scratch) const;
  void rank_candidates(const AttentionSpec& spec, SelectJob& job, size_t budget,
                       Scratch& scratch) const;

  ThreadPool& threads_;
  std::vector<Scratch> scratch_;  ///< by thread
};

}  // namespace ikv
