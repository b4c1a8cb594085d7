// Queries of one KV head's group in the forms that kernels read. Internal to attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/attention_kernels.h"
#include "core/attention_spec.h"
#include "core/kv_view.h"

namespace ikv {

/// Memory that a vector holds.
template <typename T>
size_t vector_bytes(const std::vector<T>& vector) {
  return vector.capacity() * sizeof(T);
}

/// The group's queries, once for each distinct position shift of a page list: a key that stands at
/// s + shift was rotated for s, so its query turns back by the shift. Reused from call to call.
class QueryPlanes {
 public:
  /// Collects the shifts of `pages` and prepares `num_queries` rows of head_dim floats, `stride`
  /// apart, for each.
  void prepare(const AttentionSpec& spec, std::span<const KvPageView> pages, const float* q,
               int num_queries, size_t stride);

  std::span<const int32_t> shifts() const { return shifts_; }
  std::span<const QueryView> views() const { return views_; }
  size_t size_bytes() const {
    return vector_bytes(shifts_) + vector_bytes(views_) + vector_bytes(q_) + vector_bytes(high_) +
           vector_bytes(low_) + vector_bytes(steps_) + vector_bytes(bias_);
  }

 private:
  void collect_shifts(std::span<const KvPageView> pages);
  void quantise(size_t num_rows, int head_dim, float scale);

  std::vector<int32_t> shifts_;
  std::vector<QueryView> views_;
  std::vector<float> q_;  // [shift][query][head_dim]
  std::vector<int8_t> high_, low_;
  std::vector<float> steps_;   // [shift][query]
  std::vector<int32_t> bias_;  // [shift][query]
};

}  // namespace ikv
