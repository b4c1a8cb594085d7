#include "intent/query_collector.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ikv {

QueryCollector::QueryCollector(std::vector<QueryShape> shapes, size_t max_rows)
    : shapes_(std::move(shapes)), max_rows_(max_rows), num_seen_(shapes_.size(), 0) {
  IKV_CHECK(max_rows >= 1);
  for (const QueryShape& shape : shapes_) rings_.emplace_back(max_rows * shape.width());
}

void QueryCollector::begin_span() {
  std::fill(num_seen_.begin(), num_seen_.end(), 0);
}

void QueryCollector::add(size_t layer, const float* queries) {
  IKV_CHECK(layer < shapes_.size());
  const size_t width = shapes_[layer].width();
  const size_t slot = num_seen_[layer]++ % max_rows_;
  std::copy_n(queries, width, rings_[layer].data() + slot * width);
}

size_t QueryCollector::num_rows() const {
  if (num_seen_.empty()) return 0;
  const auto [least, most] = std::minmax_element(num_seen_.begin(), num_seen_.end());
  // A layer that is ahead has already overwritten as many of its oldest rows.
  const size_t lost = *most - std::min(*most, max_rows_);
  return *least > lost ? *least - lost : 0;
}

IntentQueries QueryCollector::last(size_t count) const {
  IntentQueries result;
  result.shapes = shapes_;
  result.num_rows = std::min(count, num_rows());
  result.layers.resize(shapes_.size());
  if (shapes_.empty()) return result;
  const size_t end = *std::min_element(num_seen_.begin(), num_seen_.end());
  for (size_t layer = 0; layer < shapes_.size(); ++layer) {
    const size_t width = shapes_[layer].width();
    for (size_t token = end - result.num_rows; token < end; ++token) {
      const float* row = rings_[layer].data() + token % max_rows_ * width;
      result.layers[layer].insert(result.layers[layer].end(), row, row + width);
    }
  }
  return result;
}

}  // namespace ikv
