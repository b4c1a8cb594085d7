#include "relevance/page_data.h"

#include <cmath>
#include <string>

#include "core/dot.h"

namespace ikv {
namespace {

Status check_size(const char* what, size_t size, size_t expected, bool may_be_empty) {
  if (size == expected || (may_be_empty && size == 0)) return {};
  return invalid_argument("relevance: " + std::string(what) + " has " + std::to_string(size) +
                          " values, " + std::to_string(expected) + " are expected");
}

}  // namespace

Status check_page_data(const PageData& data, const QueryGroup& group) {
  if (data.head_dim <= 0 || group.head_dim != data.head_dim) {
    return invalid_argument("relevance: head size " + std::to_string(data.head_dim) +
                            " of the pages and " + std::to_string(group.head_dim) +
                            " of the queries must be equal and positive");
  }
  if (group.group_size <= 0 || group.num_queries <= 0) {
    return invalid_argument("relevance: there must be at least one query of at least one head");
  }
  const size_t width = static_cast<size_t>(data.head_dim);
  const size_t size = data.num_pages() * width;
  int64_t num_tokens = 0;
  for (const int32_t count : data.num_tokens) {
    if (count <= 0) return invalid_argument("relevance: a page without tokens");
    num_tokens += count;
  }
  IKV_RETURN_IF_ERROR(check_size("queries", group.queries.size(), group.num_rows() * width, false));
  IKV_RETURN_IF_ERROR(
      check_size("weights", group.weights.size(), static_cast<size_t>(group.num_queries), true));
  for (const float weight : group.weights) {
    if (!(weight >= 0.0f) || !std::isfinite(weight)) {
      return invalid_argument("relevance: weights of queries must be finite and not negative");
    }
  }
  IKV_RETURN_IF_ERROR(check_size("mean", data.mean.size(), size, true));
  IKV_RETURN_IF_ERROR(check_size("deviation", data.deviation.size(), size, true));
  IKV_RETURN_IF_ERROR(check_size("absolute_deviation", data.absolute_deviation.size(), size, true));
  IKV_RETURN_IF_ERROR(check_size("minimum", data.minimum.size(), size, true));
  IKV_RETURN_IF_ERROR(check_size("maximum", data.maximum.size(), size, true));
  return check_size("tokens", data.tokens.size(), static_cast<size_t>(num_tokens), true);
}

KeyRowLogits::KeyRowLogits(const float* keys, size_t stride, std::span<const int32_t> num_tokens)
    : keys_(keys), stride_(stride), begin_{0} {
  for (const int32_t count : num_tokens) {
    begin_.push_back(begin_.back() + static_cast<size_t>(count));
  }
}

void KeyRowLogits::page_logits(int page, const QueryGroup& group, size_t stride, float* out) const {
  const size_t begin = begin_[static_cast<size_t>(page)];
  const size_t count = begin_[static_cast<size_t>(page) + 1] - begin;
  const size_t head_dim = static_cast<size_t>(group.head_dim);
  for (size_t row = 0; row < group.num_rows(); ++row) {
    for (size_t t = 0; t < count; ++t) {
      out[row * stride + t] =
          group.scale * dot_product(group.row(row), keys_ + (begin + t) * stride_, head_dim);
    }
  }
}

}  // namespace ikv
