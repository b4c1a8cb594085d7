#include "engine/contiguous_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace ikv {
namespace {

std::vector<float> random_floats(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  for (float& value : values) value = normal(random);
  return values;
}

RopeSpec make_rope(RopePairs pairs, int num_dims) {
  RopeSpec rope;
  rope.pairs = pairs;
  rope.num_dims = num_dims;
  for (int i = 0; i < num_dims; i += 2) {
    rope.inverse_freq.push_back(std::pow(100.0f, -static_cast<float>(i) / num_dims));
  }
  return rope;
}

AttentionSpec make_spec(const RopeSpec* rope) {
  AttentionSpec spec;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 20;  // no multiple of the dot product's width
  spec.scale = 0.3f;
  spec.rope = rope;
  return spec;
}

struct Sequence {
  std::vector<float> q, k, v;
  size_t num_tokens;
};

Sequence make_sequence(const AttentionSpec& spec, size_t num_tokens, uint32_t seed) {
  const size_t q_width = static_cast<size_t>(spec.num_heads * spec.head_dim);
  const size_t kv_width = static_cast<size_t>(spec.num_kv_heads * spec.head_dim);
  return {random_floats(num_tokens * q_width, seed), random_floats(num_tokens * kv_width, seed + 1),
          random_floats(num_tokens * kv_width, seed + 2), num_tokens};
}

// The definition, in double, from unrotated rows; channel pairs and angles spelled out again.
std::vector<double> rotated(const AttentionSpec& spec, const float* x, size_t pos) {
  std::vector<double> y(x, x + spec.head_dim);
  if (spec.rope == nullptr) return y;
  const int half = spec.rope->num_dims / 2;
  for (int i = 0; i < half; ++i) {
    const double angle = static_cast<double>(pos) * spec.rope->inverse_freq[static_cast<size_t>(i)];
    const bool adjacent = spec.rope->pairs == RopePairs::kInterleaved;
    const size_t a = static_cast<size_t>(adjacent ? 2 * i : i);
    const size_t b = static_cast<size_t>(adjacent ? 2 * i + 1 : i + half);
    y[a] = spec.rope->magnitude * (x[a] * std::cos(angle) - x[b] * std::sin(angle));
    y[b] = spec.rope->magnitude * (x[a] * std::sin(angle) + x[b] * std::cos(angle));
  }
  return y;
}

std::vector<double> expected_row(const AttentionSpec& spec, const Sequence& s, size_t pos) {
  const size_t d = static_cast<size_t>(spec.head_dim);
  const size_t num_heads = static_cast<size_t>(spec.num_heads);
  const size_t num_kv_heads = static_cast<size_t>(spec.num_kv_heads);
  const size_t window = static_cast<size_t>(spec.window_tokens);
  const size_t begin = window > 0 && pos + 1 > window ? pos + 1 - window : 0;
  std::vector<double> out(num_heads * d, 0.0);
  for (size_t h = 0; h < num_heads; ++h) {
    const size_t kv = h / (num_heads / num_kv_heads);
    const auto q = rotated(spec, s.q.data() + (pos * num_heads + h) * d, pos);
    std::vector<double> weights;
    double total = 0.0;
    for (size_t t = begin; t <= pos; ++t) {
      const auto k = rotated(spec, s.k.data() + (t * num_kv_heads + kv) * d, t);
      double score = 0.0;
      for (size_t i = 0; i < d; ++i) score += q[i] * k[i];
      score *= spec.scale;
      const double cap = spec.logit_softcap;
      if (cap > 0.0) score = cap * std::tanh(score / cap);
      weights.push_back(std::exp(score));
      total += weights.back();
    }
    for (size_t t = begin; t <= pos; ++t) {
      for (size_t i = 0; i < d; ++i) {
        out[h * d + i] +=
            weights[t - begin] / total * static_cast<double>(s.v[(t * num_kv_heads + kv) * d + i]);
      }
    }
  }
  return out;
}

// Rows [begin, end) of several sequences, one after the other, in one step.
struct Part {
  int sequence;
  size_t begin, end;
};

std::vector<float> run_step(ContiguousAttention& attention, const AttentionSpec& spec,
                            const std::vector<Sequence>& sequences,
                            const std::vector<Part>& parts) {
  const size_t q_width = static_cast<size_t>(spec.num_heads * spec.head_dim);
  const size_t kv_width = static_cast<size_t>(spec.num_kv_heads * spec.head_dim);
  std::vector<ContiguousRow> rows;
  std::vector<float> q, k, v;
  for (const Part& part : parts) {
    const Sequence& s = sequences[static_cast<size_t>(part.sequence)];
    for (size_t pos = part.begin; pos < part.end; ++pos) {
      rows.push_back({part.sequence, static_cast<LogicalPos>(pos)});
      q.insert(q.end(), &s.q[pos * q_width], &s.q[pos * q_width] + q_width);
      k.insert(k.end(), &s.k[pos * kv_width], &s.k[pos * kv_width] + kv_width);
      v.insert(v.end(), &s.v[pos * kv_width], &s.v[pos * kv_width] + kv_width);
    }
  }
  std::vector<float> out(q.size());
  EXPECT_TRUE(attention.begin_step(rows).ok());
  EXPECT_TRUE(attention.attend(0, spec, q.data(), k.data(), v.data(), out.data()).ok());
  return out;
}

void expect_sequence(const AttentionSpec& spec, const Sequence& s, const std::vector<float>& out) {
  const size_t width = static_cast<size_t>(spec.num_heads * spec.head_dim);
  ASSERT_EQ(out.size(), s.num_tokens * width);
  for (size_t pos = 0; pos < s.num_tokens; ++pos) {
    const std::vector<double> expected = expected_row(spec, s, pos);
    for (size_t i = 0; i < width; ++i) ASSERT_NEAR(out[pos * width + i], expected[i], 2e-5) << pos;
  }
}

TEST(ContiguousAttentionTest, EqualsTheDefinitionForEachRuleOfTheSpec) {
  ThreadPool threads(2);
  const RopeSpec adjacent = make_rope(RopePairs::kInterleaved, 20);
  RopeSpec halves = make_rope(RopePairs::kHalves, 12);  // eight channels pass through
  halves.magnitude = 1.1f;
  AttentionSpec specs[5] = {make_spec(nullptr), make_spec(&adjacent), make_spec(&halves),
                            make_spec(&adjacent), make_spec(&adjacent)};
  specs[3].window_tokens = 5;
  specs[4].logit_softcap = 2.0f;
  for (const AttentionSpec& spec : specs) {
    const std::vector<Sequence> sequences = {make_sequence(spec, 17, 5)};
    ContiguousAttention attention(1, 1, threads);
    expect_sequence(spec, sequences[0], run_step(attention, spec, sequences, {{0, 0, 17}}));
  }
}

TEST(ContiguousAttentionTest, RowsAreBitIdenticalInAnyChunksAndAmongOtherSequences) {
  ThreadPool threads(2);
  const RopeSpec rope = make_rope(RopePairs::kInterleaved, 20);
  const AttentionSpec spec = make_spec(&rope);
  const std::vector<Sequence> sequences = {make_sequence(spec, 9, 1), make_sequence(spec, 6, 4)};
  ContiguousAttention alone(1, 2, threads);
  const std::vector<float> whole = run_step(alone, spec, sequences, {{0, 0, 9}});

  ContiguousAttention mixed(1, 2, threads);
  const size_t width = static_cast<size_t>(spec.num_heads * spec.head_dim);
  std::vector<float> pieces;
  std::vector<float> out = run_step(mixed, spec, sequences, {{1, 0, 4}, {0, 0, 3}});
  pieces.insert(pieces.end(), out.begin() + static_cast<ptrdiff_t>(4 * width), out.end());
  out = run_step(mixed, spec, sequences, {{0, 3, 8}, {1, 4, 6}});
  pieces.insert(pieces.end(), out.begin(), out.begin() + static_cast<ptrdiff_t>(5 * width));
  out = run_step(mixed, spec, sequences, {{0, 8, 9}});
  pieces.insert(pieces.end(), out.begin(), out.end());
  EXPECT_EQ(pieces, whole);
}

TEST(ContiguousAttentionTest, TruncationForgetsAndWrongPositionsAreRefused) {
  ThreadPool threads(1);
  const AttentionSpec spec = make_spec(nullptr);
  const std::vector<Sequence> sequences = {make_sequence(spec, 8, 1)};
  ContiguousAttention attention(1, 1, threads);
  const std::vector<float> first = run_step(attention, spec, sequences, {{0, 0, 8}});
  attention.truncate(0, 5);
  EXPECT_EQ(attention.length(0), 5);
  const std::vector<float> again = run_step(attention, spec, sequences, {{0, 5, 8}});
  const size_t width = static_cast<size_t>(spec.num_heads * spec.head_dim);
  EXPECT_TRUE(
      std::equal(again.begin(), again.end(), first.begin() + static_cast<ptrdiff_t>(5 * width)));

  const ContiguousRow hole[] = {{0, 9}};
  EXPECT_FALSE(attention.begin_step(hole).ok());
  const ContiguousRow unknown[] = {{1, 0}};
  EXPECT_FALSE(attention.begin_step(unknown).ok());
  EXPECT_EQ(attention.length(0), 8);  // a refused step changes nothing
}

}  // namespace
}  // namespace ikv
