// What page scorers score: the pages of one layer and KV head, and the queries of its group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

namespace ikv {

/// Queries of one KV head's group, after RoPE. A *row* is one query of one head: row =
/// query * group_size + head.
struct QueryGroup {
  int head_dim = 0;
  int group_size = 1;              ///< query heads that read this KV head
  int num_queries = 0;             ///< representative queries of the intent
  std::span<const float> queries;  ///< [query][head of the group][head_dim]
  std::span<const float> weights;  ///< one a query, >= 0; empty: all equal
  float scale = 1.0f;              ///< multiplies q·k, as in AttentionSpec
  std::span<const TokenId>
      tokens;  ///< the words of the intent, for the lexical scorer; may be empty

  size_t num_rows() const {
    return static_cast<size_t>(num_queries) * static_cast<size_t>(group_size);
  }
  const float* row(size_t r) const { return queries.data() + r * static_cast<size_t>(head_dim); }
};

/// Logits of single tokens, however they are come by: from keys of any format, or from key codes.
class PageTokenLogits {
 public:
  virtual ~PageTokenLogits() = default;

  /// Logits (`scale` included) of the tokens of `page` for every row of `group`:
  /// out[row * stride + token].
  virtual void page_logits(int page, const QueryGroup& group, size_t stride, float* out) const = 0;
};

/// Pages of one layer and KV head, in transcript order. What a scorer does not need may be empty.
/// Keys are after RoPE.
struct PageData {
  int head_dim = 0;
  std::span<const int32_t> num_tokens;           ///< of each page, > 0
  std::span<const float> mean;                   ///< [page][head_dim]
  std::span<const float> deviation;              ///< standard deviation, [page][head_dim]
  std::span<const float> absolute_deviation;     ///< mean absolute deviation, [page][head_dim]
  std::span<const float> minimum, maximum;       ///< [page][head_dim]
  std::span<const TokenId> tokens;               ///< ids of all pages' tokens, one after the other
  const PageTokenLogits* code_logits = nullptr;  ///< from key codes
  const PageTokenLogits* key_logits = nullptr;   ///< from the keys themselves

  size_t num_pages() const { return num_tokens.size(); }
};

/// Shapes agree with each other; kInvalidArgument says which does not.
Status check_page_data(const PageData& data, const QueryGroup& group);

/// PageTokenLogits over rows of float32 keys, for tests and engines that have them.
class KeyRowLogits : public PageTokenLogits {
 public:
  /// `keys`: rows of head_dim floats, `stride` apart, of all pages' tokens in order; not copied.
  KeyRowLogits(const float* keys, size_t stride, std::span<const int32_t> num_tokens);
  void page_logits(int page, const QueryGroup& group, size_t stride, float* out) const override;

 private:
  const float* keys_;
  size_t stride_;
  std::vector<size_t> begin_;  // first token of each page, and the end
};

}  // namespace ikv
