#include "pruning/policy.h"

#include <gtest/gtest.h>

#include <random>

#include "pruning/select_tokens.h"

namespace ikv {
namespace {

struct Units {
  std::vector<float> mass;
  std::vector<int32_t> tokens;
  std::vector<uint8_t> pinned;
  std::vector<uint8_t> before;
  PolicyInput input(int64_t budget) const { return {mass, tokens, pinned, before, budget}; }
};

std::vector<int> kept(const PolicyResult& result) {
  std::vector<int> units;
  for (size_t i = 0; i < result.reason.size(); ++i) {
    if (result.reason[i] != KeepReason::kPruned) units.push_back(static_cast<int>(i));
  }
  return units;
}

TEST(Policy, TopKKeepsTheMostMassiveWithinTheBudget) {
  const Units units{{0.1f, 0.5f, 0.2f, 0.2f}, {10, 10, 10, 10}, {}, {}};
  PolicyConfig config;
  config.kind = PolicyKind::kTopK;
  const auto result = run_policy(config, units.input(25));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(kept(*result), (std::vector<int>{1, 3}));
  EXPECT_EQ(result->kept_tokens, 20);
  EXPECT_FLOAT_EQ(result->kept_mass, 0.7f);
}

TEST(Policy, PinsComeFirstAndPinsOverTheBudgetAreANamedError) {
  const Units units{{0.0f, 0.9f, 0.1f}, {10, 10, 10}, {1, 0, 0}, {}};
  PolicyConfig config;
  config.kind = PolicyKind::kTopK;
  EXPECT_EQ(kept(*run_policy(config, units.input(10))), (std::vector<int>{0}));
  const auto refused = run_policy(config, units.input(9));
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("pins alone hold 10"), std::string::npos);
}

TEST(Policy, MassKeepsTheSmallestSetThatHoldsTheShare) {
  const Units units{{0.6f, 0.25f, 0.1f, 0.05f}, {1, 1, 1, 1}, {}, {}};
  PolicyConfig config;
  config.kind = PolicyKind::kMass;
  config.mass = 0.8f;
  EXPECT_EQ(kept(*run_policy(config, units.input(4))), (std::vector<int>{0, 1}));
  config.mass = 1.1f;
  EXPECT_FALSE(run_policy(config, units.input(4)).ok());
}

TEST(Policy, ThresholdFixedAndAdaptive) {
  const Units units{{0.1f, 0.1f, 0.1f, 0.7f}, {1, 1, 1, 1}, {}, {}};
  PolicyConfig config;
  config.kind = PolicyKind::kThreshold;
  config.threshold = 0.3f;  // of the mean 0.25
  EXPECT_EQ(kept(*run_policy(config, units.input(4))).size(), 4u);
  config.threshold = 1.0f;
  EXPECT_EQ(kept(*run_policy(config, units.input(4))), (std::vector<int>{3}));
  config.adaptive = 1.0f;  // mean + stddev = 0.25 + 0.26
  EXPECT_EQ(kept(*run_policy(config, units.input(4))), (std::vector<int>{3}));
}

TEST(Policy, LayeredKeepsTheRecentWindowThenScores) {
  const Units units{{0.9f, 0.1f, 0.0f, 0.0f}, {64, 64, 64, 64}, {}, {}};
  PolicyConfig config;  // layered, window 128
  const auto result = run_policy(config, units.input(192));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(kept(*result), (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(result->reason[3], KeepReason::kRecent);
  EXPECT_EQ(result->reason[0], KeepReason::kScore);
}

TEST(Policy, HysteresisKeepsWhatWasKeptUnlessClearlyBeaten) {
  Units units{{0.50f, 0.55f}, {1, 1}, {}, {1, 0}};
  PolicyConfig config;
  config.kind = PolicyKind::kTopK;
  EXPECT_EQ(kept(*run_policy(config, units.input(1))), (std::vector<int>{1}));
  config.hysteresis = 1.2f;
  EXPECT_EQ(kept(*run_policy(config, units.input(1))), (std::vector<int>{0}));
  units.mass[1] = 0.7f;
  EXPECT_EQ(kept(*run_policy(config, units.input(1))), (std::vector<int>{1}));
}

TEST(SelectTopK, EqualsASortOnRandomScoresWithManyTies) {
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    const size_t n = rng() % 500;
    const unsigned range = round % 3 == 0 ? 4 : round % 3 == 1 ? 700 : 65536;
    std::vector<uint16_t> scores(n);
    for (auto& score : scores) score = static_cast<uint16_t>(rng() % range);
    const size_t k = n == 0 ? 0 : rng() % (n + 2);
    std::vector<uint32_t> expected(n);
    for (size_t i = 0; i < n; ++i) expected[i] = static_cast<uint32_t>(i);
    std::stable_sort(expected.begin(), expected.end(),
                     [&](uint32_t a, uint32_t b) { return scores[a] > scores[b]; });
    expected.resize(std::min(k, n));
    std::sort(expected.begin(), expected.end());
    std::vector<uint32_t> selected;
    select_top_k(scores, k, selected);
    ASSERT_EQ(selected, expected) << "n " << n << " k " << k;
  }
}

}  // namespace
}  // namespace ikv
