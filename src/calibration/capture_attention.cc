#include "calibration/capture_attention.h"

#include <algorithm>
#include <cmath>

#include "core/dot.h"

namespace ikv {
namespace {

// Splitmix64 (Steele, Lea, Flood 2014): unlike std distributions the same on every platform.
uint64_t next_random(uint64_t& state) {
  uint64_t z = state += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// One query of one head at `row` over the keys that it may see; `stride` floats between rows.
void attend_row(const AttentionSpec& spec, const float* q, const float* keys, const float* values,
                size_t stride, size_t row, std::vector<float>& scores, float* out) {
  const size_t window = static_cast<size_t>(std::max(spec.window_tokens, 0));
  const size_t begin = window > 0 && row + 1 > window ? row + 1 - window : 0;
  scores.resize(row + 1 - begin);
  float max = -INFINITY;
  for (size_t t = begin; t <= row; ++t) {
    float score =
        spec.scale * dot_product(q, keys + t * stride, static_cast<size_t>(spec.head_dim));
    if (spec.logit_softcap > 0.0f) {
      score = spec.logit_softcap * std::tanh(score / spec.logit_softcap);
    }
    scores[t - begin] = score;
    max = std::max(max, score);
  }
  float total = 0.0f;
  for (float& score : scores) {
    score = std::exp(score - max);
    total += score;
  }
  std::fill(out, out + spec.head_dim, 0.0f);
  for (size_t t = begin; t <= row; ++t) {
    const float weight = scores[t - begin] / total;
    const float* value = values + t * stride;
    for (int i = 0; i < spec.head_dim; ++i) out[i] += weight * value[i];
  }
}

}  // namespace

CaptureAttention::CaptureAttention(KeySampler& sampler, int rotations, int context_tokens,
                                   uint64_t seed, ThreadPool& threads)
    : sampler_(sampler),
      threads_(threads),
      rotations_(std::max(rotations, 1)),
      context_tokens_(static_cast<uint64_t>(std::max(context_tokens, 1))),
      random_state_(seed) {
  for (const KvLayerShape& layer : sampler.layers()) {
    query_energy_.emplace_back(static_cast<size_t>(layer.num_kv_heads),
                               std::vector<double>(static_cast<size_t>(layer.head_dim), 0.0));
  }
}

void CaptureAttention::begin_chunk(size_t num_rows) {
  num_rows_ = num_rows;
  angles_.clear();
  random_positions_.resize(num_rows * static_cast<size_t>(rotations_));
  for (int64_t& position : random_positions_) {
    position = static_cast<int64_t>(next_random(random_state_) % context_tokens_);
  }
}

const CaptureAttention::Angles& CaptureAttention::angles_of(const RopeSpec& rope) {
  for (const Angles& angles : angles_) {
    if (angles.rope == &rope) return angles;
  }
  Angles& angles = angles_.emplace_back();
  angles.rope = &rope;
  angles.own.resize(num_rows_);
  angles.random.resize(random_positions_.size());
  threads_.parallel_for(num_rows_, [&](size_t row, int) {
    make_rope_angles(rope, static_cast<int64_t>(row), angles.own[row]);
    const size_t rotations = static_cast<size_t>(rotations_);
    for (size_t i = row * rotations; i < (row + 1) * rotations; ++i) {
      make_rope_angles(rope, random_positions_[i], angles.random[i]);
    }
  });
  return angles;
}

void CaptureAttention::offer_keys(int layer, const AttentionSpec& spec, const float* k) {
  const size_t head_dim = static_cast<size_t>(spec.head_dim);
  const size_t width = static_cast<size_t>(spec.num_kv_heads) * head_dim;
  const Angles* angles = spec.rope != nullptr ? &angles_of(*spec.rope) : nullptr;
  const size_t copies = angles != nullptr ? static_cast<size_t>(rotations_) : 1;
  // The sampler's heads are independent, so one task a head.
  threads_.parallel_for(static_cast<size_t>(spec.num_kv_heads), [&](size_t head, int) {
    std::vector<float> key(head_dim);
    for (size_t row = 0; row < num_rows_; ++row) {
      for (size_t i = 0; i < copies; ++i) {
        std::copy_n(k + row * width + head * head_dim, head_dim, key.begin());
        if (angles != nullptr) {
          rotate_rope(*spec.rope, angles->random[row * copies + i], 1, spec.head_dim, key.data());
        }
        sampler_.add(layer, static_cast<int>(head), key.data());
      }
    }
  });
}

void CaptureAttention::add_query_energy(int layer, const AttentionSpec& spec, const float* q) {
  const size_t head_dim = static_cast<size_t>(spec.head_dim);
  const size_t group = static_cast<size_t>(spec.num_heads / spec.num_kv_heads);
  const size_t width = static_cast<size_t>(spec.num_heads) * head_dim;
  const Angles* angles = spec.rope != nullptr ? &angles_of(*spec.rope) : nullptr;
  threads_.parallel_for(static_cast<size_t>(spec.num_kv_heads), [&](size_t kv_head, int) {
    std::vector<double>& energy = query_energy_[static_cast<size_t>(layer)][kv_head];
    std::vector<float> query(head_dim);
    for (size_t row = 0; row < num_rows_; ++row) {
      for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        std::copy_n(q + row * width + head * head_dim, head_dim, query.begin());
        if (angles != nullptr) {
          const size_t first = row * static_cast<size_t>(rotations_);
          rotate_rope(*spec.rope, angles->random[first], 1, spec.head_dim, query.data());
        }
        for (size_t c = 0; c < head_dim; ++c) {
          energy[c] += static_cast<double>(query[c]) * static_cast<double>(query[c]);
        }
      }
    }
  });
}

Status CaptureAttention::attend(int layer, const AttentionSpec& spec, float* q, float* k,
                                const float* v, float* out) {
  offer_keys(layer, spec, k);
  add_query_energy(layer, spec, q);
  const size_t num_heads = static_cast<size_t>(spec.num_heads);
  const size_t head_dim = static_cast<size_t>(spec.head_dim);
  const size_t q_width = num_heads * head_dim;
  const size_t kv_width = static_cast<size_t>(spec.num_kv_heads) * head_dim;
  if (spec.rope != nullptr) {
    const Angles& angles = angles_of(*spec.rope);
    threads_.parallel_for(num_rows_, [&](size_t row, int) {
      const RopeAngles& own = angles.own[row];
      rotate_rope(*spec.rope, own, spec.num_heads, spec.head_dim, q + row * q_width);
      rotate_rope(*spec.rope, own, spec.num_kv_heads, spec.head_dim, k + row * kv_width);
    });
  }
  const size_t group = num_heads / static_cast<size_t>(spec.num_kv_heads);
  std::vector<std::vector<float>> scores(static_cast<size_t>(threads_.num_threads()));
  threads_.parallel_for(num_rows_ * num_heads, [&](size_t index, int thread) {
    const size_t kv_offset = index % num_heads / group * head_dim;
    attend_row(spec, q + index * head_dim, k + kv_offset, v + kv_offset, kv_width,
               index / num_heads, scores[static_cast<size_t>(thread)], out + index * head_dim);
  });
  return {};
}

}  // namespace ikv
