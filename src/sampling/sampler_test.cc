#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

namespace ikv {
namespace {

GenerationConfig plain(float temperature) {
  GenerationConfig config;
  config.temperature = temperature;
  config.top_k = 0;
  config.top_p = 1.0f;
  config.min_p = 0.0f;
  config.seed = 1;
  return config;
}

std::unique_ptr<Sampler> make(const GenerationConfig& config, size_t vocab) {
  auto sampler = Sampler::create(config, static_cast<int>(vocab));
  EXPECT_TRUE(sampler.ok()) << sampler.error().message;
  return std::move(sampler).value();
}

TokenId sample_one(const GenerationConfig& config, const std::vector<float>& logits) {
  auto choice = make(config, logits.size())->sample(logits);
  EXPECT_TRUE(choice.ok());
  return choice->token;
}

std::map<TokenId, double> frequencies(const GenerationConfig& config,
                                      const std::vector<float>& logits, int num_draws = 40000) {
  auto sampler = make(config, logits.size());
  std::map<TokenId, double> shares;
  for (int i = 0; i < num_draws; ++i) shares[sampler->sample(logits)->token] += 1.0 / num_draws;
  return shares;
}

std::vector<float> logs(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<float> random_logits(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(size);
  for (float& x : logits) x = std::round(normal(random) * 8.0f) / 8.0f;  // with many ties
  return logits;
}

TEST(CandidatesTest, SelectBestEqualsAFullSortWithTiesByIdAndWithoutNan) {
  for (const size_t size : {1u, 2u, 63u, 64u, 65u, 1000u, 49152u}) {
    std::vector<float> logits = random_logits(size, 3 + static_cast<uint32_t>(size));
    for (size_t i = 5; i < size; i += 17) logits[i] = NAN;
    for (size_t i = 7; i < size; i += 23) logits[i] = -INFINITY;
    std::vector<TokenId> order;
    for (size_t i = 0; i < size; ++i) {
      if (logits[i] > -INFINITY) order.push_back(static_cast<TokenId>(i));
    }
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    for (const size_t count : {1u, 3u, 40u, 64u, 700u, 60000u}) {
      std::vector<Candidate> best;
      select_best(logits, count, best);
      ASSERT_EQ(best.size(), std::min(count, order.size()));
      for (size_t i = 0; i < best.size(); ++i) ASSERT_EQ(best[i].token, order[i]) << size;
    }
  }
}

TEST(CandidatesTest, NucleusIsTheShortestPrefixOfTheSortedDistribution) {
  const std::vector<float> logits = random_logits(5000, 9);
  std::vector<Candidate> all;
  select_best(logits, logits.size(), all);
  const double total = log_sum_exp(logits);
  for (const float mass : {0.1f, 0.5f, 0.9f, 0.99f, 0.99999f}) {
    std::vector<Candidate> nucleus;
    select_nucleus(logits, mass, nucleus);
    double held = 0.0;
    for (const Candidate& c : nucleus) held += std::exp(c.logit - total);
    EXPECT_GE(held, mass - 1e-6);
    EXPECT_LT(held - std::exp(nucleus.back().logit - total), mass + 1e-6);
    for (size_t i = 0; i < nucleus.size(); ++i) EXPECT_EQ(nucleus[i].token, all[i].token);
  }
}

TEST(SamplerTest, GreedyTakesTheLowestIdAmongTheBest) {
  EXPECT_EQ(sample_one(plain(0.0f), {1, 5, 2, 5, 4}), 1);
}

TEST(SamplerTest, DrawsFollowTheSoftmax) {
  const std::vector<double> p = {0.5, 0.3, 0.15, 0.05};
  auto shares = frequencies(plain(1.0f), logs(p));
  for (size_t i = 0; i < p.size(); ++i) EXPECT_NEAR(shares[static_cast<TokenId>(i)], p[i], 0.01);
}

TEST(SamplerTest, TemperatureSharpensAndFlattens) {
  // At T = 0.5 the odds are squared: 0.64 / 0.16 -> 16:1.
  auto cold = frequencies(plain(0.5f), logs({0.8, 0.2}));
  EXPECT_NEAR(cold[0], 16.0 / 17.0, 0.01);
  auto hot = frequencies(plain(1000.0f), logs({0.8, 0.2}));
  EXPECT_NEAR(hot[0], 0.5, 0.01);
  EXPECT_EQ(sample_one(plain(1e-30f), {1, 2, 3, -INFINITY}), 2);
}

TEST(SamplerTest, TopKTopPAndMinPCutWhatTheySay) {
  const std::vector<float> logits = logs({0.1, 0.4, 0.3, 0.2});
  GenerationConfig top_k = plain(1.0f);
  top_k.top_k = 2;
  auto shares = frequencies(top_k, logits);
  EXPECT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares[1], 4.0 / 7.0, 0.01);

  GenerationConfig top_p = plain(1.0f);
  top_p.top_p = 0.65f;  // 0.4 + 0.3
  shares = frequencies(top_p, logits);
  EXPECT_EQ(shares.size(), 2u);
  EXPECT_NEAR(shares[2], 3.0 / 7.0, 0.01);

  GenerationConfig min_p = plain(1.0f);
  min_p.min_p = 0.45f;  // at least 0.18
  shares = frequencies(min_p, logits);
  EXPECT_EQ(shares.size(), 3u);
  EXPECT_EQ(shares.count(0), 0u);
}

TEST(SamplerTest, TopPCountsTheMassThatTopKLeft) {
  GenerationConfig config = plain(1.0f);
  config.top_k = 2;
  config.top_p = 0.55f;  // of the two left, the first has 4/7 = 0.571: alone enough
  EXPECT_EQ(frequencies(config, logs({0.1, 0.4, 0.3, 0.2})).size(), 1u);
}

TEST(SamplerTest, TopPOfZeroStillLeavesTheBest) {
  GenerationConfig config = plain(1.0f);
  config.top_p = 0.0f;
  EXPECT_EQ(sample_one(config, {0, 1, 3, 2}), 2);
}

TEST(SamplerTest, TheSameSeedGivesTheSameDrawsAndAnotherSeedOthers) {
  const std::vector<float> logits = random_logits(1000, 2);
  const auto draws = [&](uint64_t seed) {
    GenerationConfig config = plain(1.5f);
    config.seed = seed;
    auto sampler = make(config, logits.size());
    std::vector<TokenId> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler->sample(logits)->token);
    return tokens;
  };
  EXPECT_EQ(draws(42), draws(42));
  EXPECT_NE(draws(42), draws(43));
  GenerationConfig unseeded = plain(1.5f);
  unseeded.seed.reset();
  EXPECT_NE(make(unseeded, 10)->seed(), make(unseeded, 10)->seed());
}

TEST(SamplerTest, PenaltiesFollowTheirFormulas) {
  GenerationConfig config = plain(0.0f);
  config.repeat_penalty = 2.0f;
  auto repeat = make(config, 3);
  repeat->accept(0);
  EXPECT_EQ(repeat->sample(std::vector<float>{3.0f, 1.6f, 0.0f})->token, 1);     // 3 / 2 < 1.6
  EXPECT_EQ(repeat->sample(std::vector<float>{-1.0f, -1.9f, -9.0f})->token, 1);  // -1 * 2 < -1.9

  config = plain(0.0f);
  config.frequency_penalty = 0.5f;
  config.presence_penalty = 0.25f;
  auto frequency = make(config, 2);
  frequency->accept(0);
  frequency->accept(0);  // 2 * 0.5 + 0.25 = 1.25
  EXPECT_EQ(frequency->sample(std::vector<float>{1.3f, 0.0f})->token, 0);
  EXPECT_EQ(frequency->sample(std::vector<float>{1.2f, 0.0f})->token, 1);
}

TEST(SamplerTest, PenaltiesForgetTokensThatLeftTheWindow) {
  GenerationConfig config = plain(0.0f);
  config.presence_penalty = 10.0f;
  config.repeat_last_n = 2;
  auto sampler = make(config, 4);
  const std::vector<float> logits = {3, 2, 1, 0};
  for (const TokenId token : {0, 0, 1}) sampler->accept(token);
  EXPECT_EQ(sampler->sample(logits)->token, 2);  // window: 0, 1
  sampler->accept(1);
  EXPECT_EQ(sampler->sample(logits)->token, 0);  // window: 1, 1
  config.repeat_last_n = -1;
  auto all = make(config, 4);
  for (const TokenId token : {0, 1, 1, 1}) all->accept(token);
  EXPECT_EQ(all->sample(logits)->token, 2);
}

TEST(SamplerTest, BiasMovesAndBansTokens) {
  GenerationConfig config = plain(0.0f);
  config.logit_bias = {{2, 2.5f}};
  EXPECT_EQ(sample_one(config, {3, 2, 1}), 2);
  config.logit_bias = {{0, -INFINITY}};
  EXPECT_EQ(sample_one(config, {INFINITY, 2, 1}), 1);
}

TEST(SamplerTest, MaskAllowsOnlyItsTokensAndAShortMaskEndsThem) {
  const std::vector<float> logits = random_logits(100, 4);
  GenerationConfig config = plain(2.0f);
  auto sampler = make(config, logits.size());
  const std::vector<uint32_t> mask = {1u << 3 | 1u << 31, 1u << 1};
  std::map<TokenId, int> seen;
  for (int i = 0; i < 300; ++i) {
    auto choice = sampler->sample(logits, mask);
    ASSERT_TRUE(choice.ok());
    ++seen[choice->token];
  }
  for (const auto& [token, count] : seen) EXPECT_TRUE(token == 3 || token == 31 || token == 33);
  EXPECT_FALSE(sampler->sample(logits, std::vector<uint32_t>{0, 0}).ok());
  EXPECT_TRUE(sampler->sample(logits).ok());  // still usable
}

TEST(SamplerTest, LogprobsAreOfTheUnfilteredDistribution) {
  GenerationConfig config = plain(0.0f);
  config.num_logprobs = 2;
  config.logit_bias = {{1, -INFINITY}};
  const std::vector<float> logits = logs({0.3, 0.6, 0.1});
  auto choice = make(config, 3)->sample(logits);
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->token, 0);
  EXPECT_NEAR(choice->logprob, std::log(0.3), 1e-5);
  ASSERT_EQ(choice->alternatives.size(), 2u);
  EXPECT_EQ(choice->alternatives[0].token, 1);
  EXPECT_NEAR(choice->alternatives[0].logprob, std::log(0.6), 1e-5);
  EXPECT_EQ(choice->alternatives[1].token, 0);
}

TEST(SamplerTest, LogitsThatAreNotNumbersNeverCrash) {
  for (const float temperature : {0.0f, 0.7f}) {
    for (const int top_k : {0, 2}) {
      GenerationConfig config = plain(temperature);
      config.top_k = top_k;
      config.top_p = 0.9f;
      config.min_p = 0.05f;
      config.num_logprobs = 3;
      config.presence_penalty = 0.5f;
      auto sampler = make(config, 4);
      sampler->accept(2);
      sampler->accept(kNoToken);
      EXPECT_FALSE(sampler->sample(std::vector<float>(4, NAN)).ok());
      EXPECT_FALSE(sampler->sample(std::vector<float>(4, -INFINITY)).ok());
      EXPECT_EQ(sampler->sample(std::vector<float>{NAN, -INFINITY, 1.0f, NAN})->token, 2);
      auto infinite = sampler->sample(std::vector<float>{1.0f, INFINITY, NAN, 0.0f});
      EXPECT_EQ(infinite->token, 1);
      EXPECT_EQ(infinite->logprob, 0.0f);
      EXPECT_TRUE(sampler->sample(std::vector<float>{INFINITY, INFINITY, 0, 0}).ok());
      EXPECT_TRUE(sampler->sample(std::vector<float>{3e38f, -3e38f, 0, 0}).ok());
    }
  }
}

}  // namespace
}  // namespace ikv
