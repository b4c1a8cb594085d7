// Level 1 and level 2 on the engine's own steps.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>

#include "engine/replay_lane.h"
#include "tiny_model_parts.h"

namespace ikv::testing {
namespace {

/// Model, random codebooks (exactness must not depend on good ones) and tokens.
class EnginePolicyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_tiny_model(threads_);
    ASSERT_NE(model_, nullptr);
    std::mt19937 random(7);
    books_ = random_codebooks(*model_, random);
    for (int i = 0; i < 900; ++i) {
      tokens_.push_back(static_cast<TokenId>(random() % model_->config().vocab_size));
    }
  }

  std::unique_ptr<ReplayLane> lane(const ReplayConfig& config) {
    auto created = ReplayLane::create(*model_, &books_, threads_, config, 1000);
    EXPECT_TRUE(created.ok()) << created.error().message;
    auto result = std::move(created).value();
    EXPECT_TRUE(result->begin().ok());
    return result;
  }

  // Logits of every decoded token: prompt of 700, then 60 steps, twice.
  std::vector<float> run(const ReplayConfig& config, ReplayCost* cost = nullptr) {
    auto replay = lane(config);
    std::vector<float> all;
    size_t done = 0;
    for (const size_t prompt : {700u, 60u}) {
      EXPECT_TRUE(replay->prefill(std::span(tokens_).subspan(done, prompt), true).ok());
      done += prompt;
      for (int i = 0; i < 60; ++i) {
        const Status status = replay->decode(tokens_[done++]);
        EXPECT_TRUE(status.ok()) << status.error().message;
        const auto logits = replay->logits();
        all.insert(all.end(), logits.begin(), logits.end());
      }
    }
    if (cost != nullptr) *cost = replay->cost();
    return all;
  }

  static ReplayConfig attending(const char* budget, TokenScorer scorer = TokenScorer::kCode) {
    ReplayConfig config;
    AttendBudget defaults;
    defaults.min_tokens = 160;
    config.policy.attend.budget = parse_attend_budget(budget, defaults).value();
    config.policy.attend.scorer = scorer;
    return config;
  }

  ThreadPool threads_{2};
  std::unique_ptr<Model> model_;
  KeyCodebooks books_;
  std::vector<TokenId> tokens_;
};

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(double{a[i]} - double{b[i]});
  return sum / static_cast<double>(a.size());
}

TEST_F(EnginePolicyTest, ForcedSelectionOfEverythingIsBitIdenticalInEveryFormat) {
  using F = KvFormat;
  for (const KvFormats formats : {KvFormats{F::kF32, F::kF32}, KvFormats{F::kF16, F::kF16},
                                  KvFormats{F::kBF16, F::kBF16}, KvFormats{F::kInt8, F::kInt8},
                                  KvFormats{F::kInt8, F::kInt4}, KvFormats{F::kInt4, F::kInt4}}) {
    ReplayConfig off;
    off.formats = formats;
    ReplayConfig forced = attending("100%");
    forced.formats = formats;
    forced.policy.attend.budget.force_selection = true;
    ReplayCost cost;
    EXPECT_EQ(run(off), run(forced, &cost)) << kv_format_name(formats.k);
    EXPECT_GT(cost.attend.selections, 0u);
    EXPECT_EQ(cost.attend.attended, cost.attend.cached);
  }
}

TEST_F(EnginePolicyTest, TheRealisedShareIsTheBudget) {
  ReplayCost cost;
  run(attending("25%"), &cost);
  const double share =
      static_cast<double>(cost.attend.attended) / static_cast<double>(cost.attend.cached);
  EXPECT_NEAR(share, 0.25, 0.002);
  EXPECT_GT(cost.attend.probes, 0u);
  EXPECT_GT(cost.attend.missed_mass, 0.0);
  EXPECT_LE(cost.attend.missed_mass, static_cast<double>(cost.attend.probes));
}

TEST_F(EnginePolicyTest, AMassBudgetReadsMoreForMoreMassWithinItsCap) {
  const auto share_read = [&](const char* budget) {
    ReplayCost cost;
    run(attending(budget), &cost);
    return static_cast<double>(cost.attend.attended) / static_cast<double>(cost.attend.cached);
  };
  const double some = share_read("mass=0.2");
  const double most = share_read("mass=0.99");
  EXPECT_LT(some, most);
  EXPECT_LE(most, 0.502);
}

TEST_F(EnginePolicyTest, ShortHistoriesAreNotPruned) {
  ReplayConfig config = attending("25%");
  config.policy.attend.budget.min_tokens = 1000;
  ReplayCost cost;
  EXPECT_EQ(run(ReplayConfig{}), run(config, &cost));
  EXPECT_EQ(cost.attend.selections, 0u);
}

TEST_F(EnginePolicyTest, BetterScorersAreCloserToTheFullCache) {
  const std::vector<float> full = run(ReplayConfig{});
  const double exact = distance(full, run(attending("25%", TokenScorer::kExact)));
  const double random = distance(full, run(attending("25%", TokenScorer::kRandom)));
  const double half = distance(full, run(attending("50%", TokenScorer::kExact)));
  EXPECT_GT(random, exact);
  EXPECT_GT(exact, half);
  EXPECT_GT(half, 0);
}

TEST_F(EnginePolicyTest, SelectionDoesNotDependOnThreads) {
  const std::vector<float> two = run(attending("25%"));
  ThreadPool one(1);
  auto created = ReplayLane::create(*model_, &books_, one, attending("25%"), 1000);
  ASSERT_TRUE(created.ok());
  ASSERT_TRUE((*created)->begin().ok());
  ASSERT_TRUE((*created)->prefill(std::span(tokens_).first(700), true).ok());
  ASSERT_TRUE((*created)->decode(tokens_[700]).ok());
  const auto logits = (*created)->logits();
  EXPECT_TRUE(std::equal(logits.begin(), logits.end(), two.begin()));
}

TEST_F(EnginePolicyTest, DemotionKeepsTheBudgetOfHotPagesAndShrinksTheCache) {
  ReplayConfig hot;
  ReplayConfig mixed;
  mixed.policy.resident = parse_resident_budget("25%").value();
  ReplayCost hot_cost;
  ReplayCost mixed_cost;
  const std::vector<float> full = run(hot, &hot_cost);
  const std::vector<float> demoted = run(mixed, &mixed_cost);
  EXPECT_GT(mixed_cost.resident.demoted_pages, 0u);
  const auto all = mixed_cost.resident.hot_pages + mixed_cost.resident.cold_pages;
  // 25 % of the sealed pages; sink and recent pages are within it at this length.
  EXPECT_LE(mixed_cost.resident.hot_pages * 4, all + 4 * 4);
  EXPECT_GT(mixed_cost.resident.hot_pages, 0u);
  EXPECT_GT(distance(full, demoted), 0);

  ReplayConfig int4;
  int4.formats = {KvFormat::kInt4, KvFormat::kInt4};
  EXPECT_LT(distance(full, demoted), distance(full, run(int4)));
}

TEST_F(EnginePolicyTest, BothLevelsRunTogetherInTheEngine) {
  // Fitted codebooks of the tiny model go to a folder of their own.
  const std::string cache = ::testing::TempDir() + "/ikv_policy_test_" + std::to_string(getpid());
  setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  EngineConfig config = tiny_config();
  config.kv_policy = "intent";
  config.kv_attend = "25%";
  config.kv_attend_min_tokens = 200;
  config.kv_resident = "30%";
  const auto engine = tiny_engine(config);
  ASSERT_NE(engine, nullptr);
  std::vector<Message> messages = {message(Role::kUser, filler(220, 1))};
  const GenerationResult first = run_chat(*engine, chat_request(messages, 30, "s"));
  EXPECT_LT(first.usage.kv.attended_share, 0.5);
  EXPECT_GT(first.usage.kv.pruned_tokens, 0);
  EXPECT_GT(first.usage.kv.demoted_pages, 0);
  EXPECT_GT(first.usage.kv.resident_bytes, 0u);
  messages.push_back(first.message);
  messages.push_back(message(Role::kUser, "and now"));
  const GenerationResult second = run_chat(*engine, chat_request(messages, 10, "s"));
  EXPECT_GT(second.usage.cached_tokens, first.usage.prompt_tokens);
  std::filesystem::remove_all(cache);
}

TEST_F(EnginePolicyTest, BadBudgetsAreNamedAtStart) {
  const auto refused = [](const char* policy, const char* attend, const char* resident) {
    EngineConfig config = tiny_config();
    config.kv_policy = policy;
    config.kv_attend = attend;
    config.kv_resident = resident;
    const auto engine = Engine::create(config);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? std::string() : engine.error().message;
  };
  EXPECT_NE(refused("intent", "0%", "").find("0%"), std::string::npos);
  EXPECT_NE(refused("intent", "", "120%").find("120%"), std::string::npos);
  EXPECT_NE(refused("intent", "-3", "").find("-3"), std::string::npos);
  EXPECT_NE(refused("wish", "", "").find("wish"), std::string::npos);
  EXPECT_NE(refused("off", "25%", "").find("off"), std::string::npos);
}

}  // namespace
}  // namespace ikv::testing
