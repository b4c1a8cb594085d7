// QueryCollector: the last queries of the span that is being evaluated.
#pragma once

#include <cstddef>
#include <vector>

#include "core/intent.h"

namespace ikv {

/// Keeps the last `max_rows` tokens' queries of each layer while a span runs in chunks, layer by
/// layer. Memory: max_rows * heads * head_dim floats a layer (0.5 MB for 8 rows of SmolLM2). Not
/// thread-safe.
class QueryCollector {
 public:
  /// `max_rows` >= 1.
  QueryCollector(std::vector<QueryShape> shapes, size_t max_rows);

  /// Forgets what was collected: a new span begins.
  void begin_span();

  /// One token's queries in a layer, [head][head_dim] before RoPE. Tokens come in their order in
  /// each layer; layers may interleave in any way.
  void add(size_t layer, const float* queries);

  /// Tokens worth adding of many at once: earlier ones would be overwritten.
  size_t max_rows() const { return max_rows_; }

  /// Tokens that all layers have seen, at most max_rows.
  size_t num_rows() const;

  /// The last `count` tokens, oldest first; fewer if fewer were seen by every layer. 1 is the
  /// source kFirstHidden, more kSpan. A token that some layers have not seen yet is left out: take
  /// them between steps.
  IntentQueries last(size_t count) const;

 private:
  std::vector<QueryShape> shapes_;
  size_t max_rows_;
  std::vector<std::vector<float>> rings_;  // [layer][slot][head][head_dim]
  std::vector<size_t> num_seen_;           // of each layer, since begin_span()
};

}  // namespace ikv
