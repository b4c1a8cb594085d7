#include "pruning/group_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "pruning/select_tokens.h"

namespace ikv {
namespace {

TEST(GroupScoresTest, EqualsTheDefinitionAtAllSizes) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 4);
  for (const size_t size : {1, 2, 15, 16, 17, 100, 513}) {
    const size_t stride = size + 3;
    std::vector<float> logits(3 * stride);
    for (float& x : logits) x = normal(random);
    logits[size / 2] = -std::numeric_limits<float>::infinity();
    std::vector<uint16_t> scores(size);
    std::vector<float> lse(3);
    group_log_mass(logits.data(), stride, 3, size, scores.data(), lse.data());
    for (size_t i = 0; i < size; ++i) {
      double best = -1e30;
      for (size_t g = 0; g < 3; ++g) {
        double sum = 0;
        for (size_t j = 0; j < size; ++j) sum += std::exp(double{logits[g * stride + j]});
        if (sum > 0) best = std::max(best, logits[g * stride + i] - std::log(sum));
      }
      const double expected = std::clamp(65535 + best * 1024, 0.0, 65535.0);
      EXPECT_NEAR(scores[i], expected, 1.5) << size << " " << i;
    }
  }
}

TEST(TokensForMassTest, CountsTheFewestThatHoldTheShare) {
  const auto score = [](double mass) {
    return static_cast<uint16_t>(std::lround(65535 + 1024 * std::log(mass)));
  };
  const std::vector<uint16_t> scores = {score(0.1), score(0.5), score(0.25), score(0.15)};
  EXPECT_EQ(tokens_for_mass(scores, 0.49f), 1u);
  EXPECT_EQ(tokens_for_mass(scores, 0.7f), 2u);
  EXPECT_EQ(tokens_for_mass(scores, 0.85f), 3u);
  EXPECT_EQ(tokens_for_mass(scores, 1.0f), 4u);
  EXPECT_EQ(tokens_for_mass({}, 0.5f), 0u);
}

TEST(GroupScoresTest, HugeAndMissingLogitsStayInRange) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> logits = {1e30f, -1e30f, -inf, 0.0f};
  std::vector<uint16_t> scores(4);
  float lse = 0;
  group_log_mass(logits.data(), 4, 1, 4, scores.data(), &lse);
  EXPECT_EQ(scores[0], 65535);
  EXPECT_EQ(scores[1], 0);
  EXPECT_EQ(scores[2], 0);
  const std::vector<float> none(4, -inf);
  group_log_mass(none.data(), 4, 1, 4, scores.data(), &lse);
  for (const uint16_t score : scores) EXPECT_EQ(score, 0);
}

}  // namespace
}  // namespace ikv
