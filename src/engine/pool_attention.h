// PoolAttention: the model's door to the KV pool for one step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "attention/paged_attention.h"
#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "core/layer_attention.h"
#include "engine/decode_selector.h"
#include "engine/page_view_cache.h"
#include "engine/rope_rows.h"
#include "engine/step_rows.h"
#include "kv/key_codes.h"
#include "kv/kv_pool.h"

namespace ikv {

/// Rotates, writes, codes, seals and attends, one layer at a time. A row reads blocks before its
/// own in the form they are stored in and its own block unsealed, so that its result depends on the
/// tokens before it alone, not on chunks, batches or where a reply ended. Engine's thread only.
class PoolAttention : public LayerAttention {
 public:
  /// `codebooks` may be null when the pool keeps no codes; all arguments must outlive this.
  PoolAttention(KvPool& pool, const KeyCodebooks* codebooks, ThreadPool& threads);
  ~PoolAttention() override;

  /// Names the rows of the next forward, in order. Every sequence must have its reserve()d step;
  /// nothing else may change the pool until the forward is done.
  Status begin_step(std::span<const StepRows> rows);

  Status attend(int layer, const AttentionSpec& spec, float* q, float* k, const float* v,
                float* out) override;

  /// Attention mass by sealed page of the step's item `item`, of the last rows that StepRows asked
  /// for: [page index of a block][block]. Valid until the next begin_step().
  const std::vector<std::vector<float>>& page_mass(size_t item) const { return page_mass_[item]; }
  /// The same, moved out.
  std::vector<std::vector<float>> take_page_mass(size_t item) {
    return std::move(page_mass_[item]);
  }

  /// A closed sequence's tables go.
  void forget(KvSequenceId sequence) { views_.forget(sequence); }

  /// Scratch that a step of `num_rows` rows takes here.
  static size_t scratch_bytes(const KvPool& pool, int num_rows);

 private:
  struct Item;
  struct Part;

  void add_parts(Item& item);
  void collect_queries(int layer, const AttentionSpec& spec, const float* q) const;
  void write_part(int layer, const AttentionSpec& spec, const Part& part, int kv_head, float* q,
                  float* k, const float* v);
  void write_codes(int layer, const AttentionSpec& spec, const Part& part, int kv_head,
                   const float* keys);
  void seal_part(int layer, const Part& part, int kv_head);
  std::byte* unsealed_page(const Part& part, int layer, int kv_head);
  KvPageView own_view(const Part& part, int layer, int kv_head, LogicalPos end);
  void attend_prefill_rows(int layer, const AttentionSpec& spec, const float* q, float* out);
  void add_page_mass();
  void attend_decode_rows(int layer, const AttentionSpec& spec, const float* q, float* out);
  void attend_decode_parts(int layer, const AttentionSpec& spec, size_t nth, const float* q,
                           float* out);

  /// A head's page list in which the row's own unsealed page stands for the time of a call.
  struct Loan {
    std::vector<KvPageView>* views = nullptr;
    std::vector<const std::byte*>* codes = nullptr;  ///< null: nothing was appended there
    size_t index = 0;
    bool appended = false;
    KvPageView aside;  ///< the sealed page of the same block, if this step seals it
  };
  void lend(PageViewCache::Pages& pages, size_t page, const KvPageView& own,
            const std::byte* own_codes);
  void take_back_loans();
  void add_decode_jobs(int layer, const AttentionSpec& spec, const Item& item, const Part& part,
                       int kv_head, const float* q, float* out);

  KvPool& pool_;
  const KeyCodebooks* codebooks_;
  ThreadPool& threads_;
  PageViewCache views_;
  RopeRows rope_;
  std::vector<Item> items_;
  std::vector<Part> parts_;
  std::vector<LogicalPos> positions_;
  AlignedBuffer unsealed_;      ///< whole blocks of this step before sealing, [page][kv head]
  size_t unsealed_stride_ = 0;  ///< bytes of the largest unsealed page
  std::vector<std::vector<float>> keys_;  ///< by thread: a block's keys as stored, for its digest
  std::vector<Loan> loans_;
  std::vector<DecodeJob> decode_jobs_;
  std::vector<SelectJob> select_jobs_;
  std::vector<AttendStats*> select_stats_;  ///< by select job
  DecodeSelector selector_;
  std::vector<PrefillJob> prefill_jobs_;
  struct MassJob {
    size_t job = 0;  ///< index into prefill_jobs_
    size_t item = 0;
    size_t page = 0;
    std::vector<float> mass;  ///< [pages + 1]
  };
  std::vector<MassJob> mass_jobs_;
  std::vector<std::vector<std::vector<float>>> page_mass_;  ///< [item][page index][block]
  std::unique_ptr<AttentionScratch> scratch_;
};

}  // namespace ikv
