// Incremental scoring picks what scoring everything again picks, and saves work when intent drifts
// slowly.
#include "relevance/incremental.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "relevance/test_pages.h"

namespace ikv::testing {
namespace {

constexpr int kDim = 16;

// The k most massive pages by a full score.
std::vector<int32_t> full_top(ScorerKind kind, GroupReduce reduce, const PageData& data,
                              const QueryGroup& group, size_t k) {
  const auto list = all_pages(data.num_pages());
  std::vector<float> mass(list.size());
  EXPECT_TRUE(score_one_stage(*make_page_scorer(kind), data, group, list, reduce, mass).ok());
  std::vector<int32_t> order(list);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float x = mass[static_cast<size_t>(a)];
    const float y = mass[static_cast<size_t>(b)];
    return x > y || (x == y && a > b);
  });
  order.resize(std::min(k, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

void add_noise(std::vector<float>& queries, float size, std::mt19937& random) {
  std::normal_distribution<float> normal;
  for (float& x : queries) x += size * normal(random);
}

TEST(IncrementalTopPages, EqualsAFullScoreForRandomDriftsKindsReducesAndSizes) {
  std::mt19937 random(11);
  const std::vector<ScorerKind> kinds = {ScorerKind::kCosine, ScorerKind::kDot, ScorerKind::kMinMax,
                                         ScorerKind::kBox};
  int checks = 0;
  for (int trial = 0; trial < 120; ++trial) {
    const TestPages pages(kDim, 1 + static_cast<int>(random() % 60), random());
    const PageData data = pages.data();
    const ScorerKind kind = kinds[random() % kinds.size()];
    const GroupReduce reduce = random() % 2 == 0 ? GroupReduce::kMax : GroupReduce::kMean;
    const int group_size = 1 + static_cast<int>(random() % 3);
    const int num_queries = 1 + static_cast<int>(random() % 4);
    auto queries = random_queries(static_cast<size_t>(kDim * group_size * num_queries), random());
    std::vector<float> weights;
    for (int i = 0; i < num_queries; ++i) weights.push_back(static_cast<float>(random() % 3));
    QueryGroup group = make_group(queries, kDim, group_size, 0.3f);
    group.weights = weights;
    auto top = IncrementalTopPages::create(kind, reduce, data, group);
    ASSERT_TRUE(top.ok()) << top.error().message;
    for (int turn = 0; turn < 12; ++turn) {
      const float drift[] = {0.0f, 0.001f, 0.03f, 0.3f, 3.0f};
      add_noise(queries, drift[random() % 5], random);
      group.queries = queries;
      const size_t k = random() % (data.num_pages() + 2);
      const auto pages_now = top->top_pages(group, k);
      ASSERT_TRUE(pages_now.ok()) << pages_now.error().message;
      ASSERT_EQ(*pages_now, full_top(kind, reduce, data, group, k))
          << scorer_name(kind) << " trial " << trial << " turn " << turn << " k " << k;
      ASSERT_LE(top->last_rescored(), top->num_scores());
      ++checks;
    }
  }
  EXPECT_EQ(checks, 1440);
}

TEST(IncrementalTopPages, AnUnchangedIntentScoresNothingAndASlowDriftFew) {
  std::mt19937 random(12);
  const TestPages pages(kDim, 200, 13);
  const PageData data = pages.data();
  auto queries = random_queries(kDim * 3, 14);
  QueryGroup group = make_group(queries, kDim, 3, 0.3f);
  auto top = IncrementalTopPages::create(ScorerKind::kBox, GroupReduce::kMax, data, group);
  ASSERT_TRUE(top.ok());
  ASSERT_TRUE(top->top_pages(group, 50).ok());
  EXPECT_EQ(top->last_rescored(), 0u);
  for (int turn = 0; turn < 10; ++turn) {
    add_noise(queries, 0.0003f, random);
    group.queries = queries;
    ASSERT_TRUE(top->top_pages(group, 50).ok());
  }
  EXPECT_LT(top->total_rescored(), 10 * top->num_scores() / 4);
}

TEST(IncrementalTopPages, OnlyTheQueryThatWasReplacedIsScoredAgain) {
  const TestPages pages(kDim, 50, 21);
  const PageData data = pages.data();
  auto queries = random_queries(kDim * 3 * 8, 22);
  QueryGroup group = make_group(queries, kDim, 3, 0.3f);
  auto top = IncrementalTopPages::create(ScorerKind::kBox, GroupReduce::kMax, data, group);
  ASSERT_TRUE(top.ok());
  const auto fresh = random_queries(kDim * 3, 23);
  std::copy(fresh.begin(), fresh.end(), queries.begin() + kDim * 3 * 5);
  group.queries = queries;
  const auto chosen = top->top_pages(group, 12);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, full_top(ScorerKind::kBox, GroupReduce::kMax, data, group, 12));
  EXPECT_GT(top->last_rescored(), 0u);
  EXPECT_LE(top->last_rescored(), top->num_scores() / 8);
}

TEST(IncrementalTopPages, EqualPagesGoByTheirPlace) {
  TestPages pages(kDim, 1, 15);
  TestPages equal = pages;
  for (int i = 0; i < 9; ++i) {
    equal.num_tokens.push_back(pages.num_tokens[0]);
    for (auto* pair :
         {&equal.mean, &equal.deviation, &equal.absolute, &equal.minimum, &equal.maximum}) {
      pair->resize(pair->size() + kDim);
      std::copy_n(pair->begin(), kDim, pair->end() - kDim);
    }
  }
  PageData data = equal.data();
  data.tokens = {};
  auto queries = random_queries(kDim, 16);
  QueryGroup group = make_group(queries, kDim, 1);
  auto top = IncrementalTopPages::create(ScorerKind::kDot, GroupReduce::kMax, data, group);
  ASSERT_TRUE(top.ok());
  queries[0] += 0.5f;
  group.queries = queries;
  EXPECT_THAT(*top->top_pages(group, 3), ::testing::ElementsAre(7, 8, 9));
}

TEST(IncrementalTopPages, OtherScorersAndOtherShapesAreRefused) {
  const TestPages pages(kDim, 5, 17);
  const auto queries = random_queries(kDim * 2, 18);
  const QueryGroup group = make_group(queries, kDim, 2);
  const auto wrong =
      IncrementalTopPages::create(ScorerKind::kMoment, GroupReduce::kMax, pages.data(), group);
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::kUnsupported);
  auto top = IncrementalTopPages::create(ScorerKind::kDot, GroupReduce::kMax, pages.data(), group);
  ASSERT_TRUE(top.ok());
  const auto more = random_queries(kDim * 4, 19);
  EXPECT_FALSE(top->top_pages(make_group(more, kDim, 2), 3).ok());
  EXPECT_FALSE(top->top_pages(make_group(queries, kDim, 2, 0.9f), 3).ok());
  EXPECT_TRUE(top->top_pages(group, 3).ok());
}

}  // namespace
}  // namespace ikv::testing
