// How much attention mass pages are expected to get: what relevance tells pruning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ikv {

/// Which KV heads decide together on the pages they keep.
enum class PageSharing : uint8_t {
  kPerHead,   ///< each KV head of each layer for itself
  kPerLayer,  ///< one set of pages for all KV heads of a layer
  kAll,       ///< one set for the whole model
};

/// Estimated mass of pages, one row for each set that `sharing` distinguishes. Rows of the pages
/// that could be pruned; what is pinned does not appear.
struct PageMass {
  PageSharing sharing = PageSharing::kPerHead;
  size_t num_pages = 0;
  std::vector<int> kv_heads;  ///< of each layer
  std::vector<float> values;  ///< [set][page], >= 0
  size_t num_sets() const { return num_pages == 0 ? 0 : values.size() / num_pages; }

  /// Index of the set that a layer's KV head belongs to. O(layer).
  size_t set_of(int layer, int kv_head) const {
    if (sharing == PageSharing::kAll) return 0;
    if (sharing == PageSharing::kPerLayer) return static_cast<size_t>(layer);
    size_t set = static_cast<size_t>(kv_head);
    for (int l = 0; l < layer; ++l) set += static_cast<size_t>(kv_heads[static_cast<size_t>(l)]);
    return set;
  }
  /// The row of a set.
  std::span<const float> row(size_t set) const {
    return std::span(values).subspan(set * num_pages, num_pages);
  }
};

}  // namespace ikv
