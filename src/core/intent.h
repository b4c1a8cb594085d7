// What a turn is about, in the model's own terms: queries of chosen tokens, before RoPE.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ikv {

/// Shape of one layer's queries.
struct QueryShape {
  int num_heads = 0;
  int head_dim = 0;
  size_t width() const { return static_cast<size_t>(num_heads) * static_cast<size_t>(head_dim); }
  friend bool operator==(const QueryShape&, const QueryShape&) = default;
};

/// Queries of some tokens in every layer and head, before RoPE, so that they can be rotated to any
/// position. A *row* is one token.
struct IntentQueries {
  std::vector<QueryShape> shapes;          ///< of each layer
  std::vector<std::vector<float>> layers;  ///< [layer][row][head][head_dim]
  size_t num_rows = 0;

  const float* row(size_t layer, size_t r) const {
    return layers[layer].data() + r * shapes[layer].width();
  }
};

/// Where queries of an intent come from.
enum class IntentSource : uint8_t {
  kSpan,         ///< the last tokens of the current span: newest user or tool message to the header
  kStated,       ///< a stated intent, run through the model as a side branch
  kFirstHidden,  ///< the last prompt token: the state from which the reply begins
  kMemory,       ///< representative queries of earlier turns
};

/// "span", "stated", "first_hidden", "memory".
constexpr std::string_view intent_source_name(IntentSource source) {
  switch (source) {
    case IntentSource::kSpan:
      return "span";
    case IntentSource::kStated:
      return "stated";
    case IntentSource::kFirstHidden:
      return "first_hidden";
    case IntentSource::kMemory:
      return "memory";
  }
  return "?";
}

/// A turn's intent: queries with weights. Weights are >= 0 and sum to 1.
struct Intent {
  IntentQueries queries;
  std::vector<float> weights;         ///< one a row
  std::vector<IntentSource> sources;  ///< one a row
};

}  // namespace ikv
