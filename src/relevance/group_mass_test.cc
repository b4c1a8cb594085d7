// Normalisation, groups, two stages, sharing.
#include "relevance/group_mass.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "relevance/test_pages.h"

namespace ikv::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

float sum(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0f);
}

// Two queries of two heads over two pages, as probabilities.
QueryGroup two_by_two(const std::vector<float>& queries) {
  return make_group(queries, 1, 2);
}

TEST(ReduceToMass, AveragesQueriesByWeightAndReducesHeads) {
  const std::vector<float> queries(4, 0.0f);
  QueryGroup group = two_by_two(queries);
  const std::vector<float> weights = {3.0f, 1.0f};
  group.weights = weights;
  // Rows: query 0 head 0, query 0 head 1, query 1 head 0, query 1 head 1.
  std::vector<float> log_mass;
  for (const float p : {0.2f, 0.8f, 0.5f, 0.5f, 0.6f, 0.4f, 0.9f, 0.1f}) {
    log_mass.push_back(std::log(p) + 7.0f);
  }
  std::vector<float> mass(2);
  reduce_to_mass(log_mass, group, 2, GroupReduce::kMean, mass);
  // Head 0: 0.75*0.2+0.25*0.6 = 0.3; head 1: 0.75*0.5+0.25*0.9 = 0.6.
  EXPECT_THAT(mass, ElementsAre(FloatNear(0.45f, 1e-5f), FloatNear(0.55f, 1e-5f)));
  reduce_to_mass(log_mass, group, 2, GroupReduce::kMax, mass);
  EXPECT_THAT(mass, ElementsAre(FloatNear(0.6f, 1e-5f), FloatNear(0.7f, 1e-5f)));
}

TEST(ReduceToMass, RowsWithoutAFiniteScoreCountAsAllAlike) {
  const std::vector<float> queries(4, 0.0f);
  const QueryGroup group = two_by_two(queries);
  std::vector<float> mass(2);
  reduce_to_mass(std::vector<float>(8, -INFINITY), group, 2, GroupReduce::kMean, mass);
  EXPECT_THAT(mass, ElementsAre(FloatNear(0.5f, 1e-6f), FloatNear(0.5f, 1e-6f)));
}

TEST(ReduceToMass, WeightsOfZeroCountAsEqualAndNoPagesAreFine) {
  const std::vector<float> queries(4, 0.0f);
  QueryGroup group = two_by_two(queries);
  const std::vector<float> weights = {0.0f, 0.0f};
  group.weights = weights;
  std::vector<float> mass(2);
  reduce_to_mass(std::vector<float>(8, 1.0f), group, 2, GroupReduce::kMean, mass);
  EXPECT_THAT(mass, ElementsAre(FloatNear(0.5f, 1e-6f), FloatNear(0.5f, 1e-6f)));
  reduce_to_mass({}, group, 0, GroupReduce::kMean, {});
}

TEST(OneStage, EveryScorersMassIsComparable) {
  const TestPages pages(16, 30, 3);
  const KeyRowLogits keys(pages.keys.data(), 16, pages.num_tokens);
  const auto queries = random_queries(2 * 3 * 16, 4);
  const QueryGroup group = make_group(queries, 16, 3);
  for (const ScorerKind kind : all_scorers()) {
    std::vector<float> mass(30);
    const auto list = all_pages(30);
    const auto scorer = make_page_scorer(kind);
    ASSERT_TRUE(
        score_one_stage(*scorer, pages.data(&keys), group, list, GroupReduce::kMean, mass).ok());
    EXPECT_NEAR(sum(mass), 1.0f, 1e-4f) << scorer_name(kind);
    ASSERT_TRUE(
        score_one_stage(*scorer, pages.data(&keys), group, list, GroupReduce::kMax, mass).ok());
    EXPECT_GE(sum(mass), 1.0f - 1e-4f) << scorer_name(kind);
    EXPECT_LE(sum(mass), 3.0f + 1e-4f) << scorer_name(kind);
  }
}

class TwoStages : public ::testing::Test {
 protected:
  std::vector<float> run(const TwoStageOptions& options) {
    std::vector<float> mass(40);
    const Status status =
        score_two_stages(options, pages_.data(&keys_), group_, all_pages(40), mass, counts_);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    return mass;
  }
  std::vector<float> one_stage(ScorerKind kind) {
    std::vector<float> mass(40);
    EXPECT_TRUE(score_one_stage(*make_page_scorer(kind), pages_.data(&keys_), group_, all_pages(40),
                                GroupReduce::kMax, mass)
                    .ok());
    return mass;
  }
  TestPages pages_{16, 40, 5};
  KeyRowLogits keys_{pages_.keys.data(), 16, pages_.num_tokens};
  std::vector<float> queries_ = random_queries(2 * 3 * 16, 6, 2.0f);
  QueryGroup group_ = make_group(queries_, 16, 3);
  StageCounts counts_;
};

TEST_F(TwoStages, WithAllPagesAsCandidatesTheFineScorerDecidesAlone) {
  TwoStageOptions options;
  options.candidate_share = 1.0f;
  const auto mass = run(options);
  EXPECT_EQ(mass, one_stage(ScorerKind::kExact));
  EXPECT_EQ(counts_.coarse_pages, 40);
  EXPECT_EQ(counts_.fine_pages, 40);
  EXPECT_EQ(counts_.fine_tokens,
            std::accumulate(pages_.num_tokens.begin(), pages_.num_tokens.end(), 0));
}

TEST_F(TwoStages, CountsWhatEachStageTouchedAndAddsUp) {
  TwoStageOptions options;
  options.candidate_share = 0.25f;
  options.min_candidates = 3;
  run(options);
  EXPECT_EQ(counts_.fine_pages, 10);
  options.min_candidates = 12;
  run(options);
  EXPECT_EQ(counts_.fine_pages, 22);
  EXPECT_EQ(counts_.coarse_pages, 80);
}

TEST_F(TwoStages, WithoutCandidatesTheCoarseScorerDecidesAlone) {
  TwoStageOptions options;
  options.candidate_share = 0.0f;
  options.min_candidates = 0;
  EXPECT_EQ(run(options), one_stage(ScorerKind::kMoment));
  EXPECT_EQ(counts_.fine_pages, 0);
}

TEST_F(TwoStages, NoPageThatWasNotLookedAtComesBeforeOneThatWas) {
  group_ = make_group(queries_, 16, 6);  // one query: the mass is monotonous in the row's score
  group_.group_size = 1;
  group_.queries = group_.queries.first(16);
  TwoStageOptions options;
  options.coarse = ScorerKind::kMinMax;  // runs high
  options.candidate_share = 0.2f;
  options.min_candidates = 0;
  const auto mass = run(options);
  const auto coarse = one_stage(ScorerKind::kMinMax);
  std::vector<float> sorted(coarse);
  std::sort(sorted.rbegin(), sorted.rend());
  float least_seen = 1.0f;
  float greatest_unseen = 0.0f;
  for (size_t p = 0; p < 40; ++p) {
    if (coarse[p] >= sorted[7]) {
      least_seen = std::min(least_seen, mass[p]);
    } else {
      greatest_unseen = std::max(greatest_unseen, mass[p]);
    }
  }
  EXPECT_GE(least_seen, greatest_unseen);
}

TEST_F(TwoStages, AShareOutsideItsRangeIsRefused) {
  for (const float share : {-0.1f, 1.1f, NAN}) {
    TwoStageOptions options;
    options.candidate_share = share;
    std::vector<float> mass(40);
    EXPECT_FALSE(
        score_two_stages(options, pages_.data(&keys_), group_, all_pages(40), mass, counts_).ok());
  }
}

TEST(ShareMass, JoinsHeadsWithinALayerAndLayersByTheMean) {
  // Layer 0 has two KV heads, layer 1 one; two pages.
  const std::vector<float> mass = {0.2f, 0.8f, 0.6f, 0.4f, 0.1f, 0.9f};
  const std::vector<int> kv_heads = {2, 1};
  const auto heads = share_mass(mass, kv_heads, 2, PageSharing::kPerHead, GroupReduce::kMax);
  ASSERT_TRUE(heads.ok());
  EXPECT_EQ(heads->values, mass);
  EXPECT_EQ(heads->set_of(1, 0), 2u);
  EXPECT_THAT(heads->row(2), ElementsAre(0.1f, 0.9f));
  const auto layers = share_mass(mass, kv_heads, 2, PageSharing::kPerLayer, GroupReduce::kMax);
  ASSERT_TRUE(layers.ok());
  EXPECT_THAT(layers->values, ElementsAre(0.6f, 0.8f, 0.1f, 0.9f));
  EXPECT_EQ(layers->set_of(1, 0), 1u);
  EXPECT_EQ(layers->num_sets(), 2u);
  const auto shared = share_mass(mass, kv_heads, 2, PageSharing::kAll, GroupReduce::kMean);
  ASSERT_TRUE(shared.ok());
  EXPECT_THAT(shared->values, ElementsAre(FloatNear(0.25f, 1e-6f), FloatNear(0.75f, 1e-6f)));
  EXPECT_EQ(shared->set_of(1, 0), 0u);
  EXPECT_FALSE(share_mass(mass, kv_heads, 3, PageSharing::kAll, GroupReduce::kMean).ok());
}

}  // namespace
}  // namespace ikv::testing
