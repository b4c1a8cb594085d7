// Level 1: scorers of pages and sources of intent, on the engine's own steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/thread_pool.h"
#include "engine/replay_lane.h"
#include "tiny_model_parts.h"

namespace ikv::testing {
namespace {

class EngineLevel1Test : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_tiny_model(threads_);
    ASSERT_NE(model_, nullptr);
    std::mt19937 book_random(3);
    books_ = random_codebooks(*model_, book_random);
    std::mt19937 random(7);
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

  std::unique_ptr<ReplayLane> observed_lane(size_t num_tokens) {
    ReplayConfig config;
    config.observe = true;
    auto replay = lane(config);
    EXPECT_TRUE(replay->prefill(std::span(tokens_).first(num_tokens), true).ok());
    return replay;
  }

  PageLists rank(const ReplayLane& replay, std::string_view scorer,
                 IntentChoice intent = IntentChoice::kSpan, const IntentHistory& history = {}) {
    PagePolicy policy;
    EXPECT_TRUE(parse_page_scorer(scorer, policy).ok());
    policy.intent = intent;
    const TurnIntent ranker(*model_, replay.pool(), &books_, threads_, policy);
    auto lists = ranker.rank(replay.turn(), history);
    EXPECT_TRUE(lists.ok()) << lists.error().message;
    return lists.ok() ? std::move(lists).value() : PageLists{};
  }

  // Share of `wanted`'s mass on the quarter of the pages that `ranked` puts first, over all heads.
  static double mass_found(const PageLists& ranked, const PageLists& wanted) {
    double found = 0;
    double all = 0;
    for (size_t page = 0; page < ranked.size(); ++page) {
      const size_t count = std::min(ranked[page].size(), wanted[page].size());
      std::vector<size_t> order(count);
      std::iota(order.begin(), order.end(), size_t{0});
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return ranked[page][a] > ranked[page][b]; });
      for (size_t i = 0; i < count; ++i) {
        all += wanted[page][order[i]];
        if (i < count / 4) found += wanted[page][order[i]];
      }
    }
    return found / all;
  }

  ThreadPool threads_{2};
  std::unique_ptr<Model> model_;
  KeyCodebooks books_;
  std::vector<TokenId> tokens_;
};

TEST_F(EngineLevel1Test, ExactScoresOfTheSpansQueriesAgreeWithTheMassThatItsAttentionLaid) {
  const auto replay = observed_lane(700);
  const PageLists laid = *replay->turn().span_mass;
  PagePolicy policy;  // the span, by scoring instead of by its own attention
  const QueryCollector& span = *replay->turn().span;
  ASSERT_EQ(span.num_rows(), 8u);
  const IntentQueries stated = span.last(kSpanQueries);
  TurnSources turn = replay->turn();
  turn.stated = &stated;
  policy.intent = IntentChoice::kStated;
  const TurnIntent ranker(*model_, replay->pool(), &books_, threads_, policy);
  const auto scored = ranker.rank(turn, {});
  ASSERT_TRUE(scored.ok()) << scored.error().message;
  // The span's rows stand up to seven positions before the one they are scored from.
  EXPECT_GT(mass_found(*scored, laid), 0.95 * mass_found(laid, laid));
}

TEST_F(EngineLevel1Test, EveryScorerRanksEverySealedPage) {
  const auto replay = observed_lane(700);
  for (const char* name : {"exact", "cosine", "dot", "minmax", "box", "moment", "lexical", "recent",
                           "random", "lru"}) {
    const PageLists lists = rank(*replay, name, IntentChoice::kFirst);
    for (const auto& list : lists) {
      ASSERT_EQ(list.size(), 700u / 32) << name;
      for (const float mass : list) EXPECT_TRUE(std::isfinite(mass) && mass >= 0) << name;
    }
  }
}

TEST_F(EngineLevel1Test, AScorerWithoutItsDataIsNamed) {
  ReplayConfig config;  // neither codes nor digests are kept
  auto created = ReplayLane::create(*model_, nullptr, threads_, config, 1000);
  ASSERT_TRUE(created.ok());
  ReplayLane& replay = **created;
  ASSERT_TRUE(replay.begin().ok());
  ASSERT_TRUE(replay.prefill(std::span(tokens_).first(100), true).ok());
  for (const char* name : {"code", "moment"}) {
    PagePolicy policy;
    ASSERT_TRUE(parse_page_scorer(name, policy).ok());
    const QueryCollector queries(query_shapes(*model_), 1);
    const IntentQueries stated{query_shapes(*model_), {}, 0};
    IntentQueries one = stated;
    one.num_rows = 1;
    for (const QueryShape& shape : one.shapes) one.layers.emplace_back(shape.width(), 1.0f);
    TurnSources turn;
    turn.sequence = replay.sequence();
    turn.stated = &one;
    policy.intent = IntentChoice::kStated;
    const auto ranked =
        TurnIntent(*model_, replay.pool(), nullptr, threads_, policy).rank(turn, {});
    ASSERT_FALSE(ranked.ok());
    EXPECT_NE(ranked.error().message.find(name), std::string::npos);
  }
}

TEST_F(EngineLevel1Test, EachScorerDemotesToTheBudget) {
  for (const char* name : {"exact", "code", "moment", "lru", "random"}) {
    for (const IntentChoice intent : {IntentChoice::kSpan, IntentChoice::kFirst,
                                      IntentChoice::kMemory, IntentChoice::kSpanMemory}) {
      ReplayConfig config;
      config.policy.resident = parse_resident_budget("30%").value();
      ASSERT_TRUE(parse_page_scorer(name, config.policy.pages).ok());
      config.policy.pages.intent = intent;
      auto replay = lane(config);
      size_t done = 0;
      for (const size_t prompt : {500u, 200u}) {
        const Status status =
            replay->prefill(std::span(tokens_).subspan(done, prompt), true, IntentPhase::kUser);
        ASSERT_TRUE(status.ok()) << name << ": " << status.error().message;
        done += prompt;
        for (int i = 0; i < 10; ++i) ASSERT_TRUE(replay->decode(tokens_[done++]).ok());
      }
      const ResidencyStats& resident = replay->cost().resident;
      const auto all = resident.hot_pages + resident.cold_pages;
      EXPECT_GT(resident.demoted_pages, 0u) << name;
      EXPECT_LE(resident.hot_pages * 10, all * 3) << name;
    }
  }
}

TEST_F(EngineLevel1Test, LruLetsGoOfWhatNoSpanWantedForLongest) {
  const auto replay = observed_lane(320);
  PagePolicy policy;
  policy.lru = true;
  const TurnIntent ranker(*model_, replay->pool(), nullptr, threads_, policy);
  PageLists mass(static_cast<size_t>(replay->pool().pages_per_block()),
                 std::vector<float>(10, 0.0f));
  for (auto& list : mass) list[1] = list[4] = 1.0f;
  IntentHistory history;
  TurnSources turn = replay->turn();
  turn.span_mass = &mass;
  ASSERT_TRUE(ranker.remember(turn, history).ok());
  const auto ranked = ranker.rank(turn, history);
  ASSERT_TRUE(ranked.ok());
  for (const auto& list : *ranked) {
    EXPECT_EQ(list[1], 320.0f);
    EXPECT_EQ(list[4], 320.0f);
    EXPECT_LT(list[0], list[2]);  // never wanted: by age
    EXPECT_LT(list[8], list[4]);
  }
}

TEST_F(EngineLevel1Test, MemoryAnswersForTheSpanOnlyOnceItRemembersSomething) {
  const auto replay = observed_lane(400);
  const PageLists span = rank(*replay, "exact", IntentChoice::kSpan);
  IntentHistory history;
  PagePolicy policy;
  policy.intent = IntentChoice::kMemory;
  const TurnIntent ranker(*model_, replay->pool(), nullptr, threads_, policy);
  ASSERT_TRUE(ranker.rank(replay->turn(), history).ok());
  EXPECT_FALSE(history.memory.has_value());
  const auto first = ranker.remember(replay->turn(), history);
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(first->has_value());
  ASSERT_TRUE(history.memory.has_value());
  EXPECT_EQ(history.memory->num_rows(IntentPhase::kUser), 8u);
  const auto second = ranker.remember(replay->turn(), history);
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_NEAR(**second, 1.0f, 1e-5f);  // the same intent again
}

TEST_F(EngineLevel1Test, QueriesOfASpanInChunksAreThoseOfItsLastTokens) {
  const auto whole = observed_lane(300);
  ReplayConfig config;
  config.observe = true;
  config.chunk_tokens = 37;
  auto chunked = lane(config);
  ASSERT_TRUE(chunked->prefill(std::span(tokens_).first(300), true).ok());
  const IntentQueries a = whole->turn().span->last(kSpanQueries);
  const IntentQueries b = chunked->turn().span->last(kSpanQueries);
  ASSERT_EQ(a.num_rows, 8u);
  ASSERT_EQ(b.num_rows, 8u);
  for (size_t layer = 0; layer < a.layers.size(); ++layer) {
    for (size_t i = 0; i < a.layers[layer].size(); ++i) {
      ASSERT_NEAR(a.layers[layer][i], b.layers[layer][i], 1e-3f);
    }
  }
}

TEST_F(EngineLevel1Test, WhatIsAskedOnTheSideLeavesNoTrace) {
  ReplayConfig config;
  config.policy.resident = parse_resident_budget("30%").value();
  config.policy.pages.intent = IntentChoice::kSpanMemory;
  const auto run = [&](bool ask) {
    auto replay = lane(config);
    std::vector<float> all;
    size_t done = 0;
    for (const size_t prompt : {505u, 120u, 100u}) {
      EXPECT_TRUE(replay->prefill(std::span(tokens_).subspan(done, prompt), true).ok());
      done += prompt;
      for (int i = 0; i < 20; ++i) EXPECT_TRUE(replay->decode(tokens_[done++]).ok());
      if (ask) {
        const auto first = replay->ask(std::span(tokens_).first(70), std::span(tokens_).first(9));
        const auto again = replay->ask(std::span(tokens_).first(70), std::span(tokens_).first(9));
        EXPECT_TRUE(first.ok() && again.ok());
        EXPECT_EQ(*first, *again);
        EXPECT_GT(*first, 0.0);
      }
      EXPECT_TRUE(replay->decode(tokens_[done++]).ok());
      all.insert(all.end(), replay->logits().begin(), replay->logits().end());
    }
    EXPECT_GT(replay->cost().resident.demoted_pages, 0u);
    EXPECT_TRUE(replay->pool().check_invariants().ok());
    return all;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST_F(EngineLevel1Test, AnAnswersLikelihoodIsThatOfItsTokensInPlace) {
  ReplayConfig config;
  auto asked = lane(config);
  ASSERT_TRUE(asked->prefill(std::span(tokens_).first(200), false).ok());
  const auto nll =
      asked->ask(std::span(tokens_).subspan(200, 40), std::span(tokens_).subspan(240, 2));
  ASSERT_TRUE(nll.ok());
  auto plain = lane(config);
  ASSERT_TRUE(plain->prefill(std::span(tokens_).first(240), true).ok());
  double sum = 0;
  for (size_t i = 240; i < 242; ++i) {
    double total = 0;
    for (const float x : plain->logits()) total += std::exp(static_cast<double>(x));
    sum += std::log(total) - static_cast<double>(plain->logits()[static_cast<size_t>(tokens_[i])]);
    ASSERT_TRUE(plain->decode(tokens_[i]).ok());
  }
  EXPECT_NEAR(*nll, sum / 2, 1e-3);
}

}  // namespace
}  // namespace ikv::testing
