#include "intent/intent_memory.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "core/dot.h"

namespace ikv {
namespace {

float cosine(const float* a, const float* b, size_t size) {
  const float norms = std::sqrt(dot_product(a, a, size)) * std::sqrt(dot_product(b, b, size));
  return norms > 0.0f ? dot_product(a, b, size) / norms : 0.0f;
}

// Mean over the rows of one layer.
std::vector<float> mean_queries(const IntentQueries& queries, size_t layer) {
  const size_t width = queries.shapes[layer].width();
  std::vector<float> mean(width, 0.0f);
  for (size_t row = 0; row < queries.num_rows; ++row) {
    const float* values = queries.row(layer, row);
    for (size_t i = 0; i < width; ++i) mean[i] += values[i];
  }
  return mean;  // the length does not matter to a cosine
}

}  // namespace

std::string_view intent_phase_name(IntentPhase phase) {
  constexpr std::array<std::string_view, kNumIntentPhases> kNames = {"user", "think", "act",
                                                                     "tool"};
  return kNames[static_cast<size_t>(phase)];
}

IntentPhase intent_phase(Role role, bool in_tool_call) {
  switch (role) {
    case Role::kTool:
      return IntentPhase::kTool;
    case Role::kAssistant:
      return in_tool_call ? IntentPhase::kAct : IntentPhase::kThink;
    case Role::kSystem:
    case Role::kUser:
      break;
  }
  return IntentPhase::kUser;
}

IntentMemory::IntentMemory(std::vector<QueryShape> shapes, IntentMemoryOptions options)
    : shapes_(std::move(shapes)), options_(options) {}

Result<IntentMemory> IntentMemory::create(std::vector<QueryShape> shapes,
                                          IntentMemoryOptions options) {
  if (options.rows_per_phase < 1) {
    return invalid_argument("intent memory: rows_per_phase must be at least 1");
  }
  if (!(options.decay >= 0.0f && options.decay <= 1.0f)) {
    return invalid_argument("intent memory: decay must be from 0 to 1");
  }
  if (!(options.forget_below >= 0.0f && options.forget_below < 1.0f)) {
    return invalid_argument("intent memory: forget_below must be from 0 to less than 1");
  }
  return IntentMemory(std::move(shapes), options);
}

void IntentMemory::merge_most_alike(std::vector<Row>& rows) {
  size_t first = 0;
  size_t second = 1;
  float best = -2.0f;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = i + 1; j < rows.size(); ++j) {
      const float similarity =
          cosine(rows[i].values.data(), rows[j].values.data(), rows[i].values.size());
      if (similarity > best) {
        best = similarity;
        first = i;
        second = j;
      }
    }
  }
  Row& kept = rows[first];
  const Row& gone = rows[second];
  const float total = kept.weight + gone.weight;
  const float part = total > 0.0f ? gone.weight / total : 0.5f;
  for (size_t i = 0; i < kept.values.size(); ++i) {
    kept.values[i] += part * (gone.values[i] - kept.values[i]);
  }
  kept.weight = total;
  rows.erase(rows.begin() + static_cast<ptrdiff_t>(second));
}

Status IntentMemory::remember(IntentPhase phase, const IntentQueries& queries) {
  if (queries.shapes != shapes_) {
    return invalid_argument("intent memory: queries of another model's shape");
  }
  std::vector<Row>& rows = phases_[static_cast<size_t>(phase)];
  for (size_t row = 0; row < queries.num_rows; ++row) {
    Row added;
    for (size_t layer = 0; layer < shapes_.size(); ++layer) {
      const float* values = queries.row(layer, row);
      added.values.insert(added.values.end(), values, values + shapes_[layer].width());
    }
    added.weight = 1.0f / static_cast<float>(queries.num_rows);
    rows.push_back(std::move(added));
    if (rows.size() > options_.rows_per_phase) merge_most_alike(rows);
  }
  return {};
}

void IntentMemory::end_turn() {
  for (std::vector<Row>& rows : phases_) {
    for (Row& row : rows) row.weight *= options_.decay;
    std::erase_if(rows, [&](const Row& row) { return row.weight < options_.forget_below; });
  }
}

void IntentMemory::append(const std::vector<Row>& rows, WeightedQueries& into) const {
  for (const Row& row : rows) {
    const float* values = row.values.data();
    for (size_t layer = 0; layer < shapes_.size(); ++layer) {
      auto& target = into.queries.layers[layer];
      target.insert(target.end(), values, values + shapes_[layer].width());
      values += shapes_[layer].width();
    }
    into.weights.push_back(row.weight);
    ++into.queries.num_rows;
  }
}

WeightedQueries IntentMemory::recall() const {
  WeightedQueries result;
  result.source = IntentSource::kMemory;
  result.queries.shapes = shapes_;
  result.queries.layers.resize(shapes_.size());
  for (const std::vector<Row>& rows : phases_) append(rows, result);
  return result;
}

WeightedQueries IntentMemory::recall(IntentPhase phase) const {
  WeightedQueries result;
  result.source = IntentSource::kMemory;
  result.queries.shapes = shapes_;
  result.queries.layers.resize(shapes_.size());
  append(phases_[static_cast<size_t>(phase)], result);
  return result;
}

size_t IntentMemory::num_rows(IntentPhase phase) const {
  return phases_[static_cast<size_t>(phase)].size();
}

size_t IntentMemory::size_bytes() const {
  size_t bytes = 0;
  for (const std::vector<Row>& rows : phases_) {
    for (const Row& row : rows) bytes += row.values.size() * sizeof(float);
  }
  return bytes;
}

void IntentMemory::clear() {
  for (std::vector<Row>& rows : phases_) rows.clear();
}

Result<float> intent_similarity(const IntentQueries& a, const IntentQueries& b) {
  if (a.shapes != b.shapes) return invalid_argument("intent: queries of different shapes");
  if (a.num_rows == 0 || b.num_rows == 0 || a.shapes.empty()) {
    return invalid_argument("intent: no queries to compare");
  }
  double total = 0.0;
  size_t num_heads = 0;
  for (size_t layer = 0; layer < a.shapes.size(); ++layer) {
    const std::vector<float> x = mean_queries(a, layer);
    const std::vector<float> y = mean_queries(b, layer);
    const size_t head_dim = static_cast<size_t>(a.shapes[layer].head_dim);
    for (size_t begin = 0; begin < x.size(); begin += head_dim) {
      total += static_cast<double>(cosine(x.data() + begin, y.data() + begin, head_dim));
      ++num_heads;
    }
  }
  return static_cast<float>(total / static_cast<double>(num_heads));
}

std::optional<float> IntentDrift::update(const IntentQueries& queries) {
  std::optional<float> similarity;
  if (last_) {
    const Result<float> result = intent_similarity(*last_, queries);
    if (result.ok()) similarity = *result;
  }
  if (queries.num_rows > 0) last_ = queries;
  return similarity;
}

}  // namespace ikv
