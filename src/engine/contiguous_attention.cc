#include "engine/contiguous_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/check.h"

namespace ikv {
namespace {

// Sixteen partial sums: a fixed order that compilers turn into vectors.
float dot(const float* a, const float* b, int size) {
  std::array<float, 16> sums{};
  int i = 0;
  for (; i + 16 <= size; i += 16) {
    for (int j = 0; j < 16; ++j) sums[static_cast<size_t>(j)] += a[i + j] * b[i + j];
  }
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  for (; i < size; ++i) total += a[i] * b[i];
  return total;
}

// One query head over the tokens [begin, end) of one KV head.
void attend_one(const AttentionSpec& spec, const float* q, const float* keys, const float* values,
                int begin, int end, float* out, std::vector<float>& scores) {
  const size_t stride = static_cast<size_t>(spec.num_kv_heads) * static_cast<size_t>(spec.head_dim);
  scores.resize(static_cast<size_t>(end - begin));
  float max = -INFINITY;
  for (int t = begin; t < end; ++t) {
    float score = spec.scale * dot(q, keys + static_cast<size_t>(t) * stride, spec.head_dim);
    if (spec.logit_softcap > 0.0f) {
      score = spec.logit_softcap * std::tanh(score / spec.logit_softcap);
    }
    scores[static_cast<size_t>(t - begin)] = score;
    max = std::max(max, score);
  }
  double total = 0.0;
  for (float& score : scores) {
    score = std::exp(score - max);
    total += static_cast<double>(score);
  }
  std::fill(out, out + spec.head_dim, 0.0f);
  const float inverse = static_cast<float>(1.0 / total);
  for (int t = begin; t < end; ++t) {
    const float weight = scores[static_cast<size_t>(t - begin)] * inverse;
    const float* value = values + static_cast<size_t>(t) * stride;
    for (int i = 0; i < spec.head_dim; ++i) out[i] += weight * value[i];
  }
}

}  // namespace

void rotate_heads(const RopeSpec* rope, int num_heads, int head_dim, LogicalPos pos, float* x) {
  if (rope == nullptr) return;
  const int half = rope->num_dims / 2;
  const bool interleaved = rope->pairs == RopePairs::kInterleaved;
  for (int i = 0; i < half; ++i) {
    const double angle = pos * static_cast<double>(rope->inverse_freq[static_cast<size_t>(i)]);
    const float cosine = static_cast<float>(std::cos(angle)) * rope->magnitude;
    const float sine = static_cast<float>(std::sin(angle)) * rope->magnitude;
    const int first = interleaved ? 2 * i : i;
    const int second = interleaved ? 2 * i + 1 : i + half;
    for (int head = 0; head < num_heads; ++head) {
      float* row = x + static_cast<ptrdiff_t>(head) * head_dim;
      const float a = row[first];
      const float b = row[second];
      row[first] = a * cosine - b * sine;
      row[second] = a * sine + b * cosine;
    }
  }
}

ContiguousAttention::ContiguousAttention(int num_layers, int num_sequences, ThreadPool& threads)
    : threads_(threads),
      stores_(static_cast<size_t>(num_layers) * static_cast<size_t>(num_sequences)),
      lengths_(static_cast<size_t>(num_sequences), 0) {}

Status ContiguousAttention::begin_step(std::span<const ContiguousRow> rows) {
  std::vector<int> lengths = lengths_;
  for (const ContiguousRow& row : rows) {
    if (row.sequence < 0 || static_cast<size_t>(row.sequence) >= lengths.size()) {
      return invalid_argument("sequence " + std::to_string(row.sequence) + " does not exist");
    }
    int& length = lengths[static_cast<size_t>(row.sequence)];
    if (row.position != length) {
      return invalid_argument("sequence " + std::to_string(row.sequence) + " holds " +
                              std::to_string(length) + " tokens, so position " +
                              std::to_string(row.position) + " cannot come next");
    }
    ++length;
  }
  lengths_ = std::move(lengths);
  rows_.assign(rows.begin(), rows.end());
  return {};
}

void ContiguousAttention::truncate(int sequence, int num_tokens) {
  int& length = lengths_[static_cast<size_t>(sequence)];
  length = std::min(length, std::max(num_tokens, 0));
}

void ContiguousAttention::write_rows(int layer, const AttentionSpec& spec, float* q, float* k,
                                     const float* v) {
  const size_t q_width = static_cast<size_t>(spec.num_heads) * static_cast<size_t>(spec.head_dim);
  const size_t kv_width =
      static_cast<size_t>(spec.num_kv_heads) * static_cast<size_t>(spec.head_dim);
  for (size_t r = 0; r < rows_.size(); ++r) {
    const LogicalPos pos = rows_[r].position;
    rotate_heads(spec.rope, spec.num_heads, spec.head_dim, pos, q + r * q_width);
    rotate_heads(spec.rope, spec.num_kv_heads, spec.head_dim, pos, k + r * kv_width);
    Store& s = store(layer, rows_[r].sequence);
    s.k.resize((static_cast<size_t>(pos) + 1) * kv_width);
    s.v.resize((static_cast<size_t>(pos) + 1) * kv_width);
    std::copy_n(k + r * kv_width, kv_width, s.k.end() - static_cast<ptrdiff_t>(kv_width));
    std::copy_n(v + r * kv_width, kv_width, s.v.end() - static_cast<ptrdiff_t>(kv_width));
  }
}

Status ContiguousAttention::attend(int layer, const AttentionSpec& spec, float* q, float* k,
                                   const float* v, float* out) {
  IKV_CHECK(layer >= 0 && static_cast<size_t>(layer) < stores_.size() / lengths_.size());
  write_rows(layer, spec, q, k, v);
  const size_t num_heads = static_cast<size_t>(spec.num_heads);
  const size_t head_dim = static_cast<size_t>(spec.head_dim);
  const size_t group = num_heads / static_cast<size_t>(spec.num_kv_heads);
  std::vector<std::vector<float>> scores(static_cast<size_t>(threads_.num_threads()));
  threads_.parallel_for(rows_.size() * num_heads, [&](size_t index, int thread) {
    const size_t head = index % num_heads;
    const ContiguousRow& row = rows_[index / num_heads];
    const Store& s = store(layer, row.sequence);
    const int end = row.position + 1;
    const int begin = spec.window_tokens > 0 ? std::max(0, end - spec.window_tokens) : 0;
    const size_t kv_offset = head / group * head_dim;
    attend_one(spec, q + index * head_dim, s.k.data() + kv_offset, s.v.data() + kv_offset, begin,
               end, out + index * head_dim, scores[static_cast<size_t>(thread)]);
  });
  return {};
}

}  // namespace ikv
