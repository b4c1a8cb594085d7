#include "eval_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ikv {
namespace {

TEST(EvalMetricsTest, EqualLogitsDifferByExactlyNothing) {
  const std::vector<float> logits = {1.5f, -2.0f, 30.0f, 0.25f};
  const TokenDifference d = compare_logits(logits, logits, 1);
  EXPECT_EQ(d.kl, 0.0);
  EXPECT_EQ(d.dnll, 0.0);
  EXPECT_TRUE(d.top1);
}

TEST(EvalMetricsTest, ATwoTokenCaseWorkedByHand) {
  // p = (0.75, 0.25), q = (0.5, 0.5): KL = 0.75 ln 1.5 + 0.25 ln 0.5.
  const std::vector<float> full = {std::log(3.0f), 0.0f};
  const std::vector<float> candidate = {7.0f, 7.0f};
  const TokenDifference d = compare_logits(full, candidate, 0);
  EXPECT_NEAR(d.kl, 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-6);
  EXPECT_NEAR(d.nll_full, -std::log(0.75), 1e-6);
  EXPECT_NEAR(d.dnll, std::log(0.75) - std::log(0.5), 1e-6);
}

TEST(EvalMetricsTest, ADifferentFavouriteIsNoAgreement) {
  const std::vector<float> full = {1.0f, 0.0f};
  const std::vector<float> candidate = {0.0f, 1.0f};
  EXPECT_FALSE(compare_logits(full, candidate, 0).top1);
}

TEST(EvalMetricsTest, QuantilesInterpolateAsNumpyDoes) {
  const Distribution d = describe({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(d.mean, 2.5);
  EXPECT_DOUBLE_EQ(d.median, 2.5);
  EXPECT_NEAR(d.p95, 3.85, 1e-12);  // numpy.percentile([1, 2, 3, 4], 95)
  EXPECT_DOUBLE_EQ(d.max, 4);
}

TEST(EvalMetricsTest, BootstrapHasNoWidthWhenClustersAgreeAndWidthWhenNot) {
  const Interval same = bootstrap_mean({{1, 1}, {1}, {1, 1, 1}});
  EXPECT_DOUBLE_EQ(same.low, 1);
  EXPECT_DOUBLE_EQ(same.high, 1);
  const Interval wide = bootstrap_mean({{0}, {1}, {0}, {1}});
  EXPECT_LE(wide.low, 0.25);
  EXPECT_GE(wide.high, 0.75);
}

}  // namespace
}  // namespace ikv
