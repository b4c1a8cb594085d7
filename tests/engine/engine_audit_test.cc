// The audit counts what decode steps really read, and why pages stand as they stand.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <random>

#include "base/thread_pool.h"
#include "engine/audit_counter.h"
#include "engine/pool_setup.h"
#include "engine/step_runner.h"
#include "intentkv/audit.h"
#include "tiny_model_parts.h"

namespace ikv::testing {
namespace {

TEST(AttendCounter, CountsAShareOfTheTimesThatAPositionCouldBeRead) {
  AttendCounter counter;
  counter.grow(4);
  counter.count_all(0, 3);
  const std::vector<uint32_t> entries = {0, 2};
  counter.count_chosen(1, 4, entries);  // positions 1 and 3
  counter.grow(6);
  EXPECT_EQ(counter.shares(), (std::vector<float>{1, 1, 0.5f, 1, 1, 1}));
}

/// Decodes on the tiny model with a counter in the rows.
class CountedDecode : public ::testing::Test {
 protected:
  static constexpr int kPrompt = 400;
  static constexpr int kSteps = 30;

  void SetUp() override {
    model_ = load_tiny_model(threads_);
    ASSERT_NE(model_, nullptr);
    books_ = random_codebooks(*model_, random_);
    auto pool = KvPool::create(
        make_pool_config(*model_, {KvFormat::kInt8, KvFormat::kInt8}, 32, true, false), &ledger_);
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    pool_ = std::move(pool).value();
  }

  std::vector<float> shares_with(const AttendPolicy& policy) {
    StepRunner runner(*model_, *pool_, &books_, threads_);
    auto sequence = pool_->open({1, 0});
    EXPECT_TRUE(sequence.ok());
    std::vector<TokenId> tokens(kPrompt + kSteps);
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(random_() % model_->config().vocab_size);
    }
    AttendCounter counter;
    StepRows rows;
    rows.sequence = *sequence;
    rows.tokens = std::span(tokens).first(kPrompt);
    EXPECT_TRUE(runner.run({&rows, 1}).ok());
    rows.decode = true;
    rows.num_logit_rows = 1;
    rows.attend = &policy;
    rows.counter = &counter;
    for (int i = 0; i < kSteps; ++i) {
      counter.grow(static_cast<size_t>(kPrompt + i + 1));
      rows.tokens = std::span(tokens).subspan(static_cast<size_t>(kPrompt + i), 1);
      EXPECT_TRUE(runner.run({&rows, 1}).ok());
    }
    pool_->close(*sequence);
    return counter.shares();
  }

  ThreadPool threads_{2};
  std::mt19937 random_{11};
  MemoryLedger ledger_{64u << 20};
  std::unique_ptr<Model> model_;
  KeyCodebooks books_;
  std::unique_ptr<KvPool> pool_;
};

TEST_F(CountedDecode, ForcedSelectionOfEverythingReadsEveryPositionAlways) {
  AttendPolicy policy;
  policy.budget.force_selection = true;
  const std::vector<float> shares = shares_with(policy);
  EXPECT_EQ(shares, std::vector<float>(kPrompt + kSteps, 1.0f));
}

TEST_F(CountedDecode, PrunedPositionsAreReadLessAndTheMeanIsTheBudget) {
  AttendPolicy policy;
  policy.budget = parse_attend_budget("100").value();
  policy.budget.min_tokens = 1;
  policy.budget.sink_tokens = 16;
  policy.budget.recent_tokens = 40;
  const std::vector<float> shares = shares_with(policy);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(shares[static_cast<size_t>(i)], 1.0f) << i;
  for (size_t i = kPrompt - 40 + kSteps; i < shares.size(); ++i) EXPECT_EQ(shares[i], 1.0f) << i;
  // Every step reads 100: what is not forced shares 44 of about 350 places.
  const double middle = std::accumulate(shares.begin() + 16, shares.begin() + 360, 0.0) / 344;
  EXPECT_GT(middle, 0.10);
  EXPECT_LT(middle, 0.16);
  EXPECT_LT(*std::min_element(shares.begin() + 16, shares.begin() + 360), 0.1f);
}

/// Engines with both levels on; codebooks of the tiny model go to a folder of their own.
class EngineAudit : public ::testing::Test {
 protected:
  EngineAudit() {
    cache_ = ::testing::TempDir() + "/ikv_audit_test_" + std::to_string(getpid());
    setenv("XDG_CACHE_HOME", cache_.c_str(), 1);
  }
  ~EngineAudit() override { std::filesystem::remove_all(cache_); }

  static EngineConfig pruning_config() {
    EngineConfig config = tiny_config();
    config.kv_policy = "intent";
    config.kv_attend = "40%";
    config.kv_attend_min_tokens = 200;
    config.kv_resident = "30%";
    return config;
  }

  static GenerationResult ask(Engine& engine, const std::vector<Message>& messages, bool audit) {
    ChatRequest request = chat_request(messages, 20, "s");
    request.audit = audit;
    return run_chat(engine, std::move(request));
  }

  std::string cache_;
};

TEST_F(EngineAudit, NobodyWhoDoesNotAskGetsOneAndAskingChangesNothing) {
  const std::vector<Message> messages = {message(Role::kUser, filler(220, 1))};
  const auto plain = tiny_engine(pruning_config());
  const auto audited = tiny_engine(pruning_config());
  ASSERT_TRUE(plain && audited);
  const GenerationResult without = ask(*plain, messages, false);
  const GenerationResult with = ask(*audited, messages, true);
  EXPECT_EQ(without.audit, nullptr);
  ASSERT_NE(with.audit, nullptr);
  EXPECT_EQ(without.text, with.text);
}

TEST_F(EngineAudit, FiguresOfAPrunedTurnAgreeWithTheUsage) {
  const auto engine = tiny_engine(pruning_config());
  ASSERT_NE(engine, nullptr);
  std::vector<Message> messages = {message(Role::kUser, filler(220, 1))};
  const GenerationResult first = ask(*engine, messages, true);
  messages.push_back(first.message);
  messages.push_back(message(Role::kUser, "and now"));
  const GenerationResult second = ask(*engine, messages, true);
  ASSERT_TRUE(first.audit && second.audit);
  EXPECT_EQ(first.audit->turn, 1);
  EXPECT_EQ(second.audit->turn, 2);
  for (const GenerationResult* result : {&first, &second}) {
    const TurnAudit& audit = *result->audit;
    EXPECT_EQ(audit.session_id, "s");
    EXPECT_EQ(audit.num_steps, result->usage.completion_tokens - 1);
    EXPECT_EQ(audit.tokens.size(), audit.attended_shares.size());
    EXPECT_EQ(audit.spans.back().end, static_cast<int32_t>(audit.tokens.size()));
    const double mean =
        std::accumulate(audit.attended_shares.begin(), audit.attended_shares.end(), 0.0) /
        static_cast<double>(audit.tokens.size());
    EXPECT_NEAR(mean, result->usage.kv.attended_share, 0.03);
    int64_t demoted = 0;
    double mass = 0;
    for (const AuditBlock& block : audit.blocks) {
      const AuditReasons& r = block.reasons;
      demoted += r.demoted;
      mass += block.mass;
      const int32_t hot = r.pin + r.recent + r.score + r.room;
      if (hot + r.demoted + r.earlier == 0) continue;  // sealed after the decision
      EXPECT_EQ(hot, block.hot_pages);
      EXPECT_EQ(r.demoted + r.earlier, block.cold_pages);
    }
    EXPECT_EQ(demoted, result->usage.kv.demoted_pages);
    EXPECT_GT(demoted, 0);
    EXPECT_NEAR(mass, 1.0, 1e-3);
    EXPECT_GT(audit.blocks.front().reasons.pin, 0);
  }
  const auto earlier = [](const TurnAudit& audit) {
    return std::accumulate(
        audit.blocks.begin(), audit.blocks.end(), 0,
        [](int sum, const AuditBlock& block) { return sum + block.reasons.earlier; });
  };
  EXPECT_EQ(earlier(*first.audit), 0);
  EXPECT_EQ(earlier(*second.audit), first.usage.kv.demoted_pages);
}

TEST_F(EngineAudit, WithoutAPolicyEverythingIsReadAndHot) {
  const auto engine = tiny_engine();
  ASSERT_NE(engine, nullptr);
  const GenerationResult result = ask(*engine, {message(Role::kUser, filler(100, 3))}, true);
  ASSERT_NE(result.audit, nullptr);
  const TurnAudit& audit = *result.audit;
  EXPECT_EQ(audit.attend_budget, "all");
  EXPECT_EQ(audit.cold_pages, 0);
  EXPECT_GT(audit.hot_pages, 0);
  EXPECT_TRUE(std::all_of(audit.attended_shares.begin(), audit.attended_shares.end(),
                          [](float share) { return share == 1.0f; }));
}

TEST_F(EngineAudit, PlainTextHasOneToo) {
  const auto engine = tiny_engine(pruning_config());
  ASSERT_NE(engine, nullptr);
  CompletionRequest request;
  request.prompt = filler(220, 5);
  request.generation = greedy(10);
  request.audit = true;
  auto generation = engine->complete(std::move(request));
  ASSERT_TRUE(generation.ok());
  const auto result = (*generation)->wait();
  ASSERT_TRUE(result.ok());
  ASSERT_NE(result->audit, nullptr);
  EXPECT_TRUE(result->audit->session_id.empty());
  EXPECT_EQ(result->audit->num_steps, 9);
  EXPECT_LT(*std::min_element(result->audit->attended_shares.begin(),
                              result->audit->attended_shares.end()),
            0.5f);
}

}  // namespace
}  // namespace ikv::testing
