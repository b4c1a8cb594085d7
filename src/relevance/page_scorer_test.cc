// Each scorer against its formula, and what may be asked of it.
#include "relevance/page_scorer.h"

#include <gmock/gmock.h>

#include <cmath>

#include "relevance/test_pages.h"

namespace ikv::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kDim = 24;
constexpr float kScale = 0.2f;

class PageScorerTest : public ::testing::Test {
 protected:
  std::vector<float> score(ScorerKind kind, const PageData& data, uint64_t seed = 0) {
    std::vector<float> out(group_.num_rows() * pages_.size());
    const Status status = make_page_scorer(kind, seed)->score(data, group_, pages_, out);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    return out;
  }
  float digest_dot(const std::vector<float>& digest, size_t row, size_t page) {
    float sum = 0;
    for (int c = 0; c < kDim; ++c) sum += group_.row(row)[c] * digest[page * kDim + c];
    return sum;
  }
  float log_n(size_t page) { return std::log(static_cast<float>(pages_data_.num_tokens[page])); }

  TestPages pages_data_{kDim, 20, 1};
  KeyRowLogits keys_{pages_data_.keys.data(), kDim, pages_data_.num_tokens};
  std::vector<float> queries_ = random_queries(2 * 3 * kDim, 2);
  QueryGroup group_ = make_group(queries_, kDim, 3, kScale);
  std::vector<int32_t> pages_ = all_pages(20);
};

TEST_F(PageScorerTest, DotIsThePagesSizeAndTheProductWithItsMean) {
  const auto scores = score(ScorerKind::kDot, pages_data_.data());
  for (size_t row = 0; row < 6; ++row) {
    for (size_t p = 0; p < 20; ++p) {
      EXPECT_NEAR(scores[row * 20 + p], log_n(p) + kScale * digest_dot(pages_data_.mean, row, p),
                  1e-4);
    }
  }
}

TEST_F(PageScorerTest, ExactIsTheMassOfSoftmaxOverAllTokens) {
  const auto scores = score(ScorerKind::kExact, pages_data_.data(&keys_));
  for (size_t row = 0; row < 6; ++row) {
    std::vector<double> mass(20, 0.0), from_scores(20, 0.0);
    double total = 0, score_total = 0;
    size_t token = 0;
    for (size_t p = 0; p < 20; ++p) {
      for (int t = 0; t < pages_data_.num_tokens[p]; ++t, ++token) {
        double logit = 0;
        for (int c = 0; c < kDim; ++c) {
          logit += group_.row(row)[c] * pages_data_.keys[token * kDim + static_cast<size_t>(c)];
        }
        mass[p] += std::exp(kScale * logit);
      }
      total += mass[p];
      from_scores[p] = std::exp(static_cast<double>(scores[row * 20 + p]));
      score_total += from_scores[p];
    }
    for (size_t p = 0; p < 20; ++p) {
      EXPECT_NEAR(mass[p] / total, from_scores[p] / score_total, 1e-5);
    }
  }
}

TEST_F(PageScorerTest, MinMaxIsNeverBelowTheExactMass) {
  const auto bound = score(ScorerKind::kMinMax, pages_data_.data());
  const auto exact = score(ScorerKind::kExact, pages_data_.data(&keys_));
  for (size_t i = 0; i < bound.size(); ++i) EXPECT_GE(bound[i], exact[i] - 1e-4f);
}

TEST_F(PageScorerTest, MomentIsCloserToTheExactMassThanDotAndDotIsNeverAbove) {
  const auto exact = score(ScorerKind::kExact, pages_data_.data(&keys_));
  const auto moment = score(ScorerKind::kMoment, pages_data_.data());
  const auto dot = score(ScorerKind::kDot, pages_data_.data());
  double moment_error = 0, dot_error = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    moment_error += std::abs(moment[i] - exact[i]);
    dot_error += std::abs(dot[i] - exact[i]);
    EXPECT_LE(dot[i], exact[i] + 1e-4f);  // Jensen
  }
  EXPECT_LT(moment_error, 0.5 * dot_error);
}

TEST_F(PageScorerTest, BoxAddsTheAbsoluteDeviationOrEstimatesItFromTheStandardOne) {
  const auto box = score(ScorerKind::kBox, pages_data_.data());
  PageData standard = pages_data_.data();
  standard.absolute_deviation = {};
  const auto estimated = score(ScorerKind::kBox, standard);
  for (size_t row = 0; row < 6; ++row) {
    for (size_t p = 0; p < 20; ++p) {
      float spread = 0;
      float standard_spread = 0;
      for (size_t c = 0; c < kDim; ++c) {
        spread += std::abs(group_.row(row)[c]) * pages_data_.absolute[p * kDim + c];
        standard_spread += std::abs(group_.row(row)[c]) * pages_data_.deviation[p * kDim + c];
      }
      const float middle = log_n(p) + kScale * digest_dot(pages_data_.mean, row, p);
      EXPECT_NEAR(box[row * 20 + p], middle + kScale * spread, 1e-4);
      EXPECT_NEAR(estimated[row * 20 + p],
                  middle + kScale * std::sqrt(2.0f / 3.14159265f) * standard_spread, 1e-4);
    }
  }
}

TEST_F(PageScorerTest, CosineForgetsTheLengthOfAMeanButNotItsDirection) {
  pages_data_.num_tokens.assign(20, 8);
  PageData data = pages_data_.data();
  data.tokens = {};
  const auto before = score(ScorerKind::kCosine, data);
  std::vector<float> scaled(pages_data_.mean);
  for (int c = 0; c < kDim; ++c) scaled[static_cast<size_t>(c)] *= 3.0f;  // page 0
  data.mean = scaled;
  const auto after = score(ScorerKind::kCosine, data);
  // All scores scale alike (the mean length grew); their ratios stay.
  const float log_8 = std::log(8.0f);
  const float factor = (after[1] - log_8) / (before[1] - log_8);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i] - log_8, factor * (before[i] - log_8), 2e-3) << i;
  }
}

TEST_F(PageScorerTest, LexicalPrefersPagesWithTheIntentsRareWords) {
  std::fill(pages_data_.num_tokens.begin(), pages_data_.num_tokens.end(), 4);
  pages_data_.tokens.assign(80, 1);
  for (size_t p = 0; p < 20; ++p) pages_data_.tokens[4 * p] = 2;  // in every page
  pages_data_.tokens[4 * 7 + 1] = 9;                              // in page 7 alone
  PageData data = pages_data_.data();
  const std::vector<TokenId> words = {2, 9, 9};
  group_.tokens = words;
  const auto scores = score(ScorerKind::kLexical, data);
  for (size_t p = 0; p < 20; ++p) {
    if (p == 7) continue;
    EXPECT_GT(scores[7], scores[p] + 0.5f);
  }
  EXPECT_EQ(scores[3], scores[5 * 20 + 3]) << "rows are alike";
}

TEST_F(PageScorerTest, RandomDependsOnSeedAndPageOnlyAndRecentFallsWithAge) {
  const auto a = score(ScorerKind::kRandom, pages_data_.data(), 5);
  EXPECT_EQ(a, score(ScorerKind::kRandom, pages_data_.data(), 5));
  EXPECT_NE(a, score(ScorerKind::kRandom, pages_data_.data(), 6));
  pages_data_.num_tokens.assign(20, 16);
  PageData data = pages_data_.data();
  data.tokens = {};
  const auto recent = score(ScorerKind::kRecent, data);
  for (size_t p = 1; p < 20; ++p) EXPECT_GT(recent[p], recent[p - 1]);
}

TEST_F(PageScorerTest, AListOfPagesIsScoredAsAllOfThemAre) {
  for (const ScorerKind kind : all_scorers()) {
    const auto all = score(kind, pages_data_.data(&keys_));
    pages_ = {3, 0, 19};
    const auto some = score(kind, pages_data_.data(&keys_));
    for (size_t row = 0; row < 6; ++row) {
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(some[row * 3 + i], all[row * 20 + static_cast<size_t>(pages_[i])])
            << scorer_name(kind);
      }
    }
    pages_ = all_pages(20);
  }
}

TEST_F(PageScorerTest, NamesAreReadBack) {
  for (const ScorerKind kind : all_scorers()) EXPECT_EQ(parse_scorer(scorer_name(kind)), kind);
  EXPECT_EQ(all_scorers().size(), 10u);
  EXPECT_FALSE(parse_scorer("quest").has_value());
}

TEST_F(PageScorerTest, MissingDataIsNamed) {
  PageData bare;
  bare.head_dim = kDim;
  bare.num_tokens = pages_data_.num_tokens;
  for (const ScorerKind kind : all_scorers()) {
    std::vector<float> out(6 * 20);
    const Status status = make_page_scorer(kind)->score(bare, group_, pages_, out);
    const bool needs_nothing = kind == ScorerKind::kRandom || kind == ScorerKind::kRecent;
    ASSERT_EQ(status.ok(), needs_nothing) << scorer_name(kind);
    if (needs_nothing) continue;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.error().message, HasSubstr(std::string(scorer_name(kind))));
  }
}

TEST_F(PageScorerTest, ShapesThatDoNotFitAreRefused) {
  std::vector<float> out(6 * 20);
  const auto scorer = make_page_scorer(ScorerKind::kDot);
  const auto refused = [&](const PageData& data, const QueryGroup& group,
                           const std::vector<int32_t>& pages) {
    const Status status = scorer->score(data, group, pages, out);
    return !status.ok() && status.error().code == ErrorCode::kInvalidArgument;
  };
  EXPECT_FALSE(refused(pages_data_.data(), group_, pages_));
  EXPECT_TRUE(refused(pages_data_.data(), group_, {1, 20}));
  EXPECT_TRUE(refused(pages_data_.data(), group_, {-1}));
  EXPECT_TRUE(refused(pages_data_.data(), group_, {1})) << "room for another number of scores";
  PageData data = pages_data_.data();
  data.mean = data.mean.subspan(1);
  EXPECT_TRUE(refused(data, group_, pages_));
  data = pages_data_.data();
  std::vector<int32_t> counts(pages_data_.num_tokens);
  counts[3] = 0;
  data.num_tokens = counts;
  EXPECT_TRUE(refused(data, group_, pages_));
  QueryGroup group = group_;
  group.head_dim = kDim / 2;
  EXPECT_TRUE(refused(pages_data_.data(), group, pages_));
  group = group_;
  const std::vector<float> weights = {1.0f, NAN};
  group.weights = weights;
  EXPECT_TRUE(refused(pages_data_.data(), group, pages_));
  group.num_queries = 0;
  EXPECT_TRUE(refused(pages_data_.data(), group, pages_));
}

TEST_F(PageScorerTest, KeysThatAreNotANumberCountForNothing) {
  pages_data_.mean[5 * kDim] = NAN;
  const auto scores = score(ScorerKind::kDot, pages_data_.data());
  EXPECT_EQ(scores[5], -INFINITY);
  EXPECT_TRUE(std::isfinite(scores[4]));
}

}  // namespace
}  // namespace ikv::testing
