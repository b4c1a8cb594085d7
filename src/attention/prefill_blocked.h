// Prefill by tiles of queries and segments of keys. Internal to attention.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/entry_rows.h"
#include "attention/paged_attention.h"
#include "attention/prefill_kernels.h"
#include "attention/query_planes.h"
#include "core/kv_view.h"

namespace ikv {

/// One thread's work on prefill jobs, one after another. Segments are cut from the page list at
/// fixed places and each query's softmax runs over them in order, so that a row's result depends on
/// its page list alone. About 0.8 MiB at the largest head size.
class BlockedPrefill {
 public:
  void run(const AttentionSpec& spec, const PrefillJob& job, const PrefillKernels& kernels);
  size_t size_bytes() const;
  /// Bytes of the packed and decoded rows.
  static size_t buffer_bytes();

 private:
  /// A page's keys within the segment.
  struct PageSpan {
    uint32_t page;
    int begin, count;
  };

  void start(const AttentionSpec& spec, const PrefillJob& job);
  void run_pages(uint32_t first, uint32_t last);
  void run_segment(uint32_t first, uint32_t last);
  bool is_read(uint32_t page) const;
  void gather(uint32_t first, uint32_t last);
  void gather_page(const KvPageView& page, int begin);
  void prefetch(uint32_t first, uint32_t last) const;
  void find_ranges();
  void run_tile(int first_query);
  void record_mass(int first_query, int num_queries, const TileWeights& weights);
  void finish();
  void write_mass();

  RowRange row_range(LogicalPos position) const;

  const AttentionSpec* spec_ = nullptr;
  const PrefillJob* job_ = nullptr;
  const PrefillKernels* kernels_ = nullptr;
  int group_ = 0;
  int num_queries_ = 0;            ///< rows times group
  int out_stride_ = 0;             ///< head_dim rounded up to 64
  std::vector<KvPageView> pages_;  ///< the job's, the own block last
  std::vector<float> q_;           ///< [query][head_dim]
  QueryPlanes queries_;
  int shift_index_ = 0;  ///< of the segment

  // The segment.
  PackedSegment segment_;
  std::vector<PageSpan> spans_;
  std::vector<RowRange> ranges_;  ///< by row of the job
  const uint8_t* key_rows_[kSegmentKeys];
  const uint8_t* value_rows_[kSegmentKeys];
  struct Buffers;
  struct DeleteBuffers {
    void operator()(Buffers* buffers) const;
  };
  std::unique_ptr<Buffers, DeleteBuffers> buffers_;

  // Results so far.
  std::vector<float> max_, sum_;  ///< [query]
  std::vector<float> out_;        ///< [query][out_stride], one more for queries that are not there
  std::vector<float> mass_, mass_max_;  ///< [observed query][page]
};

}  // namespace ikv
