// What is sampled, and that the chunk is attended as a plain cache does it.
#include "calibration/capture_attention.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "engine/contiguous_attention.h"

namespace ikv {
namespace {

std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

struct Case {
  RopePairs pairs = RopePairs::kInterleaved;
  int rope_dims = 32;
  int window_tokens = 0;
  float softcap = 0.0f;
};

AttentionSpec make_spec(const Case& c, RopeSpec& rope) {
  rope.pairs = c.pairs;
  rope.num_dims = c.rope_dims;
  for (int i = 0; i < c.rope_dims / 2; ++i) {
    rope.inverse_freq.push_back(
        std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(c.rope_dims)));
  }
  AttentionSpec spec;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 32;
  spec.scale = 0.3f;
  spec.window_tokens = c.window_tokens;
  spec.logit_softcap = c.softcap;
  spec.rope = &rope;
  return spec;
}

class CaptureAttentionTest : public ::testing::TestWithParam<Case> {};

TEST_P(CaptureAttentionTest, OutputEqualsThePlainCaches) {
  RopeSpec rope;
  const AttentionSpec spec = make_spec(GetParam(), rope);
  constexpr size_t kRows = 37;
  const auto q = random_floats(kRows * 128, 1);
  const auto k = random_floats(kRows * 64, 2);
  const auto v = random_floats(kRows * 64, 3);
  ThreadPool threads(2);
  std::vector<float> expected(kRows * 128), actual(kRows * 128);
  {
    ContiguousAttention plain(1, 1, threads);
    std::vector<ContiguousRow> rows;
    for (size_t i = 0; i < kRows; ++i) rows.push_back({0, static_cast<LogicalPos>(i)});
    ASSERT_TRUE(plain.begin_step(rows).ok());
    auto q2 = q, k2 = k;
    ASSERT_TRUE(plain.attend(0, spec, q2.data(), k2.data(), v.data(), expected.data()).ok());
  }
  KeySampler sampler({{2, 32}}, 64, 1);
  CaptureAttention capture(sampler, 2, 1000, 1, threads);
  capture.begin_chunk(kRows);
  auto q2 = q, k2 = k;
  ASSERT_TRUE(capture.attend(0, spec, q2.data(), k2.data(), v.data(), actual.data()).ok());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], 1e-5) << i;
}

INSTANTIATE_TEST_SUITE_P(Cases, CaptureAttentionTest,
                         ::testing::Values(Case{}, Case{RopePairs::kHalves},
                                           Case{RopePairs::kInterleaved, 16},
                                           Case{RopePairs::kHalves, 32, 5},
                                           Case{RopePairs::kInterleaved, 32, 0, 2.0f}));

TEST(CaptureAttention, EverySampleIsItsKeyRotatedToSomePositionOfTheContext) {
  RopeSpec rope;
  const AttentionSpec spec = make_spec({}, rope);
  constexpr int kContext = 50;
  constexpr int kRotations = 40;
  auto q = random_floats(128, 1);
  const auto k = random_floats(64, 2);
  const auto v = random_floats(64, 3);
  ThreadPool threads(1);
  KeySampler sampler({{2, 32}}, 1000, 1);
  CaptureAttention capture(sampler, kRotations, kContext, 9, threads);
  capture.begin_chunk(1);
  std::vector<float> out(128);
  auto k2 = k;
  ASSERT_TRUE(capture.attend(0, spec, q.data(), k2.data(), v.data(), out.data()).ok());
  std::vector<int> hits(kContext, 0);
  for (int head = 0; head < 2; ++head) {
    ASSERT_EQ(sampler.num_samples(0, head), static_cast<size_t>(kRotations));
    const auto& samples = sampler.samples(0, head);
    for (int i = 0; i < kRotations; ++i) {
      int found = -1;
      for (int position = 0; position < kContext; ++position) {
        std::vector<float> expected(k.begin() + head * 32, k.begin() + (head + 1) * 32);
        rotate_heads(&rope, 1, 32, position, expected.data());
        float error = 0.0f;
        for (int c = 0; c < 32; ++c) {
          error = std::max(error, std::abs(expected[static_cast<size_t>(c)] -
                                           samples[static_cast<size_t>(i * 32 + c)]));
        }
        if (error < 1e-5f) found = position;
      }
      ASSERT_GE(found, 0) << "sample " << i;
      ++hits[static_cast<size_t>(found)];
    }
  }
  // 40 draws of 50: the same for both heads, and neither few positions nor one half only.
  int distinct = 0;
  int upper = 0;
  for (int position = 0; position < kContext; ++position) {
    distinct += hits[static_cast<size_t>(position)] > 0 ? 1 : 0;
    upper += position >= kContext / 2 ? hits[static_cast<size_t>(position)] : 0;
  }
  EXPECT_GT(distinct, 15);
  EXPECT_GT(upper, 20);
  EXPECT_LT(upper, 60);
}

}  // namespace
}  // namespace ikv
