#include "intent/intent_builder.h"

#include <cmath>
#include <string>

#include "base/check.h"
#include "core/rope.h"

namespace ikv {
namespace {

// Weights of the source's rows, summing to 1; empty when none has a weight.
Result<std::vector<float>> row_weights(const WeightedQueries& source) {
  const size_t rows = source.queries.num_rows;
  const std::string name(intent_source_name(source.source));
  std::vector<float> weights = source.weights;
  if (weights.empty()) weights.assign(rows, 1.0f);
  if (weights.size() != rows) {
    return invalid_argument("intent: source '" + name + "' has " + std::to_string(rows) +
                            " rows and " + std::to_string(weights.size()) + " weights");
  }
  double total = 0.0;
  for (const float weight : weights) {
    if (!std::isfinite(weight) || weight < 0.0f) {
      return invalid_argument("intent: a weight of source '" + name +
                              "' is negative or not a finite number");
    }
    total += static_cast<double>(weight);
  }
  if (total <= 0.0) return std::vector<float>();
  for (float& weight : weights) weight = static_cast<float>(static_cast<double>(weight) / total);
  return weights;
}

Status check_shapes(const WeightedQueries& source, const std::vector<QueryShape>& shapes) {
  const IntentQueries& queries = source.queries;
  bool fits = queries.shapes == shapes && queries.layers.size() == shapes.size();
  for (size_t layer = 0; fits && layer < shapes.size(); ++layer) {
    fits = queries.layers[layer].size() == queries.num_rows * shapes[layer].width();
  }
  if (fits) return {};
  return invalid_argument("intent: the queries of source '" +
                          std::string(intent_source_name(source.source)) +
                          "' do not have the shape of the others");
}

}  // namespace

float IntentMix::of(IntentSource source) const {
  switch (source) {
    case IntentSource::kSpan:
      return span;
    case IntentSource::kStated:
      return stated;
    case IntentSource::kFirstHidden:
      return first_hidden;
    case IntentSource::kMemory:
      return memory;
  }
  return 0.0f;
}

Result<Intent> build_intent(const IntentMix& mix, const std::vector<WeightedQueries>& sources) {
  Intent intent;
  double total = 0.0;
  for (const WeightedQueries& source : sources) {
    const float share = mix.of(source.source);
    if (!std::isfinite(share) || share < 0.0f) {
      return invalid_argument("intent: the share of source '" +
                              std::string(intent_source_name(source.source)) +
                              "' is negative or not a finite number");
    }
    if (intent.queries.shapes.empty()) {
      intent.queries.shapes = source.queries.shapes;
      intent.queries.layers.resize(intent.queries.shapes.size());
    }
    IKV_RETURN_IF_ERROR(check_shapes(source, intent.queries.shapes));
    IKV_ASSIGN_OR_RETURN(const std::vector<float> weights, row_weights(source));
    if (weights.empty() || share == 0.0f) continue;
    total += static_cast<double>(share);
    intent.queries.num_rows += source.queries.num_rows;
    for (size_t layer = 0; layer < intent.queries.layers.size(); ++layer) {
      auto& into = intent.queries.layers[layer];
      into.insert(into.end(), source.queries.layers[layer].begin(),
                  source.queries.layers[layer].end());
    }
    for (const float weight : weights) {
      intent.weights.push_back(weight * share);
      intent.sources.push_back(source.source);
    }
  }
  if (total <= 0.0) return invalid_argument("intent: no source gives a query with a weight");
  for (float& weight : intent.weights) {
    weight = static_cast<float>(static_cast<double>(weight) / total);
  }
  return intent;
}

std::vector<float> rotated_group(const IntentQueries& queries, size_t layer,
                                 const AttentionSpec& spec, int kv_head, int64_t position) {
  const QueryShape& shape = queries.shapes[layer];
  IKV_CHECK(spec.num_heads == shape.num_heads && spec.head_dim == shape.head_dim);
  const int group = spec.num_heads / spec.num_kv_heads;
  const size_t width = static_cast<size_t>(group) * static_cast<size_t>(shape.head_dim);
  const size_t begin = static_cast<size_t>(kv_head) * width;
  std::vector<float> out;
  out.reserve(queries.num_rows * width);
  for (size_t row = 0; row < queries.num_rows; ++row) {
    const float* q = queries.row(layer, row) + begin;
    out.insert(out.end(), q, q + width);
  }
  if (spec.rope == nullptr || queries.num_rows == 0) return out;
  RopeAngles angles;
  make_rope_angles(*spec.rope, position, angles);
  rotate_rope(*spec.rope, angles, static_cast<int>(queries.num_rows) * group, shape.head_dim,
              out.data());
  return out;
}

}  // namespace ikv
