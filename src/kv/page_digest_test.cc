#include "kv/page_digest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ikv {
namespace {

TEST(PageDigest, MomentsComeBackWithinTheStatedErrorAndFitTheBudget) {
  for (const int head_dim : {32, 64, 128, 256}) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> keys(static_cast<size_t>(head_dim) * 32);
    for (size_t i = 0; i < keys.size(); ++i) {
      keys[i] = normal(random) + (i % head_dim == 3 ? 20.0f : 0.0f);
    }
    std::vector<std::byte> digest(page_digest_bytes(head_dim));
    make_page_digest(keys.data(), head_dim, 32, head_dim, digest.data());
    std::vector<float> mean(head_dim), deviation(head_dim);
    PageMoments moments{mean.data(), deviation.data(), 0};
    read_page_digest(digest.data(), head_dim, moments);
    EXPECT_EQ(moments.num_tokens, 32);
    std::vector<double> m(head_dim), s(head_dim);
    double largest_mean = 0, largest_deviation = 0;
    for (int c = 0; c < head_dim; ++c) {
      for (int t = 0; t < 32; ++t) m[c] += keys[t * head_dim + c] / 32.0;
      for (int t = 0; t < 32; ++t) s[c] += std::pow(keys[t * head_dim + c] - m[c], 2) / 32.0;
      s[c] = std::sqrt(s[c]);
      largest_mean = std::max(largest_mean, std::abs(m[c]));
      largest_deviation = std::max(largest_deviation, s[c]);
    }
    for (int c = 0; c < head_dim; ++c) {
      EXPECT_NEAR(mean[c], m[c], largest_mean / 254 * 1.001 + 1e-5);
      EXPECT_NEAR(deviation[c], s[c], largest_deviation / 510 * 1.001 + 1e-5);
    }
    EXPECT_LE(static_cast<double>(digest.size()), 0.02 * 32 * head_dim * 4);
  }
}

TEST(PageDigest, OneTokenAndZeroKeysHaveNoSpread) {
  std::vector<float> keys(32, 0.0f), mean(32, 9.0f), deviation(32, 9.0f);
  std::vector<std::byte> digest(page_digest_bytes(32));
  make_page_digest(keys.data(), 32, 1, 32, digest.data());
  PageMoments moments{mean.data(), deviation.data(), 0};
  read_page_digest(digest.data(), 32, moments);
  EXPECT_EQ(mean, std::vector<float>(32, 0.0f));
  EXPECT_EQ(deviation, std::vector<float>(32, 0.0f));
  EXPECT_EQ(moments.num_tokens, 1);
}

TEST(PageDigest, MinMaxBoundsEveryKey) {
  const std::vector<float> keys = {1, -2, 3, 5, 0, -7};
  float low[2], high[2];
  page_min_max(keys.data(), 2, 3, 2, low, high);
  EXPECT_EQ(low[0], 0);
  EXPECT_EQ(high[0], 3);
  EXPECT_EQ(low[1], -7);
  EXPECT_EQ(high[1], 5);
}

}  // namespace
}  // namespace ikv
