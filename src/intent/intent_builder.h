// From sources to one intent, and from an intent to the queries that scorers take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/attention_spec.h"
#include "core/intent.h"

namespace ikv {

/// Share of each source in the intent; a source that gives no rows leaves its share to the others.
/// The default is what measurements support: the current span's last queries alone.
struct IntentMix {
  float span = 1.0f;
  float stated = 1.0f;  ///< counts only in requests that state an intent
  float first_hidden = 0.0f;
  float memory = 0.0f;

  float of(IntentSource source) const;
};

/// Rows of one source with their weights among each other (empty: all equal).
struct WeightedQueries {
  IntentSource source = IntentSource::kSpan;
  IntentQueries queries;
  std::vector<float> weights;
};

/// Joins the sources by `mix`. Errors: kInvalidArgument (shapes differ between sources, a weight
/// that is negative or not finite, numbers that do not fit, nothing with a weight).
Result<Intent> build_intent(const IntentMix& mix, const std::vector<WeightedQueries>& sources);

/// The queries of the heads that read `kv_head` of a layer, [row][head of the group][head_dim], all
/// rotated to `position`, where the next token stands: what relevance's QueryGroup takes. `spec` is
/// the layer's. Cost: rows * head_dim * group.
std::vector<float> rotated_group(const IntentQueries& queries, size_t layer,
                                 const AttentionSpec& spec, int kv_head, int64_t position);

}  // namespace ikv
