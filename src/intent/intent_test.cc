// Collecting a span's queries, joining sources, rotating to the present, stating an intent.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "core/rope.h"
#include "intent/intent_builder.h"
#include "intent/query_collector.h"
#include "intent/stated_intent.h"
#include "intent/test_queries.h"

namespace ikv::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;

// Every value of a row is `mark` plus its place.
std::vector<float> marked(size_t width, float mark) {
  std::vector<float> row(width);
  std::iota(row.begin(), row.end(), mark);
  return row;
}

TEST(QueryCollector, KeepsTheLastRowsOldestFirstHoweverChunksAndLayersInterleave) {
  QueryCollector collector(test_shapes(), 3);
  int next[2] = {0, 0};
  const auto run = [&](size_t layer, int count) {
    for (int i = 0; i < count; ++i) {
      collector.add(layer, marked(32, 1000.0f * static_cast<float>(next[layer]++) +
                                          0.5f * static_cast<float>(layer))
                               .data());
    }
  };
  run(0, 4);
  run(1, 4);
  run(0, 1);
  run(1, 1);
  ASSERT_EQ(collector.num_rows(), 3u);
  const IntentQueries last = collector.last(2);
  ASSERT_EQ(last.num_rows, 2u);
  EXPECT_EQ(last.row(0, 0)[0], 3000.0f);
  EXPECT_EQ(last.row(0, 1)[31], 4031.0f);
  EXPECT_EQ(last.row(1, 1)[0], 4000.5f);
  EXPECT_EQ(collector.last(99).num_rows, 3u);
}

TEST(QueryCollector, RowsThatALayerHasNotSeenOrHasLostAreLeftOut) {
  QueryCollector collector(test_shapes(), 4);
  for (int i = 0; i < 6; ++i) collector.add(0, marked(32, static_cast<float>(i)).data());
  for (int i = 0; i < 5; ++i) collector.add(1, marked(32, static_cast<float>(i)).data());
  // Layer 0 holds tokens 2..5, layer 1 tokens 1..4: both have 2..4.
  const IntentQueries last = collector.last(4);
  ASSERT_EQ(last.num_rows, 3u);
  EXPECT_EQ(last.row(0, 0)[0], 2.0f);
  EXPECT_EQ(last.row(1, 0)[0], 2.0f);
  EXPECT_EQ(last.row(0, 2)[0], 4.0f);
  EXPECT_EQ(last.row(1, 2)[0], 4.0f);
}

TEST(QueryCollector, ANewSpanForgetsTheOldOne) {
  QueryCollector collector(test_shapes(), 4);
  collector.add(0, marked(32, 1.0f).data());
  collector.add(1, marked(32, 1.0f).data());
  collector.begin_span();
  EXPECT_EQ(collector.num_rows(), 0u);
  EXPECT_EQ(collector.last(4).num_rows, 0u);
  collector.add(0, marked(32, 2.0f).data());
  EXPECT_EQ(collector.num_rows(), 0u) << "layer 1 has nothing yet";
  collector.add(1, marked(32, 2.0f).data());
  EXPECT_EQ(collector.last(4).row(1, 0)[0], 2.0f);
}

TEST(BuildIntent, SharesOfSourcesAreKeptWhateverTheirNumbersOfRows) {
  IntentMix mix;
  mix.span = 3.0f;
  mix.memory = 1.0f;
  const std::vector<WeightedQueries> sources = {
      {IntentSource::kSpan, random_intent(3, 1), {}},
      {IntentSource::kMemory, random_intent(2, 2), {1.0f, 3.0f}},
      {IntentSource::kFirstHidden, random_intent(1, 3), {}}};  // share 0
  const auto intent = build_intent(mix, sources);
  ASSERT_TRUE(intent.ok()) << intent.error().message;
  EXPECT_EQ(intent->queries.num_rows, 5u);
  EXPECT_THAT(intent->weights,
              ElementsAre(FloatNear(0.25f, 1e-6f), FloatNear(0.25f, 1e-6f), FloatNear(0.25f, 1e-6f),
                          FloatNear(0.0625f, 1e-6f), FloatNear(0.1875f, 1e-6f)));
  EXPECT_THAT(intent->sources,
              ElementsAre(IntentSource::kSpan, IntentSource::kSpan, IntentSource::kSpan,
                          IntentSource::kMemory, IntentSource::kMemory));
  for (size_t layer = 0; layer < 2; ++layer) {
    const size_t width = test_shapes()[layer].width();
    EXPECT_TRUE(
        std::equal(sources[1].queries.layers[layer].begin(), sources[1].queries.layers[layer].end(),
                   intent->queries.layers[layer].begin() + static_cast<ptrdiff_t>(3 * width)));
  }
}

TEST(BuildIntent, AnEmptySourceLeavesItsShareToTheOthers) {
  IntentMix mix;
  mix.memory = 9.0f;
  const auto intent = build_intent(mix, {{IntentSource::kMemory, random_intent(0, 1), {}},
                                         {IntentSource::kSpan, random_intent(2, 2), {}}});
  ASSERT_TRUE(intent.ok()) << intent.error().message;
  EXPECT_THAT(intent->weights, ElementsAre(0.5f, 0.5f));
}

TEST(BuildIntent, WhatDoesNotFitIsNamed) {
  const auto refused = [](const IntentMix& mix, const std::vector<WeightedQueries>& sources,
                          const char* words) {
    const auto intent = build_intent(mix, sources);
    ASSERT_FALSE(intent.ok()) << words;
    EXPECT_EQ(intent.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(intent.error().message, HasSubstr(words));
  };
  refused({}, {}, "no source");
  refused({}, {{IntentSource::kFirstHidden, random_intent(1, 1), {}}}, "no source");
  refused({}, {{IntentSource::kSpan, random_intent(2, 1), {1.0f}}}, "2 rows and 1 weights");
  refused({}, {{IntentSource::kSpan, random_intent(1, 1), {-1.0f}}}, "negative");
  refused({}, {{IntentSource::kSpan, random_intent(1, 1), {NAN}}}, "negative");
  IntentMix mix;
  mix.stated = -1.0f;
  refused(mix, {{IntentSource::kStated, random_intent(1, 1), {}}}, "'stated'");
  IntentQueries other = random_intent(1, 1);
  other.shapes[0].num_heads = 2;
  refused({}, {{IntentSource::kSpan, random_intent(1, 1), {}}, {IntentSource::kStated, other, {}}},
          "shape");
}

TEST(RotatedGroup, PicksTheGroupsHeadsAndRotatesThemToThePosition) {
  RopeSpec rope;
  rope.pairs = RopePairs::kHalves;
  rope.num_dims = 8;
  rope.inverse_freq = {1.0f, 0.3f, 0.1f, 0.01f};
  AttentionSpec spec;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.rope = &rope;
  const IntentQueries queries = random_intent(3, 5);
  const auto rotated = rotated_group(queries, 0, spec, 1, 100);
  ASSERT_EQ(rotated.size(), 3u * 2 * 8);
  for (size_t row = 0; row < 3; ++row) {
    for (size_t head = 0; head < 2; ++head) {
      const float* raw = queries.row(0, row) + (2 + head) * 8;
      const float* got = rotated.data() + (row * 2 + head) * 8;
      for (size_t i = 0; i < 4; ++i) {
        const double angle = 100.0 * static_cast<double>(rope.inverse_freq[i]);
        EXPECT_NEAR(got[i], raw[i] * std::cos(angle) - raw[i + 4] * std::sin(angle), 1e-4);
        EXPECT_NEAR(got[i + 4], raw[i] * std::sin(angle) + raw[i + 4] * std::cos(angle), 1e-4);
      }
    }
  }
  spec.rope = nullptr;
  const auto plain = rotated_group(queries, 0, spec, 0, 100);
  EXPECT_EQ(plain[0], queries.row(0, 0)[0]);
}

TEST(RotatedGroup, AProductWithARotatedKeyDependsOnTheDistanceAlone) {
  RopeSpec rope;
  rope.num_dims = 8;
  rope.inverse_freq = {1.0f, 0.3f, 0.1f, 0.01f};
  AttentionSpec spec;
  spec.num_heads = spec.num_kv_heads = 4;
  spec.head_dim = 8;
  spec.rope = &rope;
  const IntentQueries queries = random_intent(1, 6);
  const auto product = [&](int64_t query_position, int64_t key_position) {
    const auto q = rotated_group(queries, 0, spec, 2, query_position);
    std::vector<float> key = marked(8, -3.0f);
    RopeAngles angles;
    make_rope_angles(rope, key_position, angles);
    rotate_rope(rope, angles, 1, 8, key.data());
    return std::inner_product(q.begin(), q.end(), key.begin(), 0.0f);
  };
  EXPECT_NEAR(product(5000, 4990), product(30, 20), 2e-3);
  EXPECT_GT(std::abs(product(5000, 4990) - product(30, 10)), 0.01f);
}

TEST(StatedIntent, PartsBecomeLinesAndTheTextComesFirst) {
  StatedIntent intent;
  intent.text = "Find a cheaper flight.";
  intent.name = "book_flight";
  intent.slots = {{"from", "Beijing"}, {"to", "Shanghai"}};
  intent.plan_step = "compare prices";
  EXPECT_EQ(*intent_text(intent),
            "Find a cheaper flight.\nIntent: book_flight\nfrom: Beijing\nto: Shanghai\n"
            "Step: compare prices");
}

TEST(StatedIntent, NothingANamelessSlotOrTooMuchIsRefused) {
  EXPECT_FALSE(intent_text({}).ok());
  StatedIntent nameless;
  nameless.slots = {{"", "x"}};
  EXPECT_FALSE(intent_text(nameless).ok());
  StatedIntent lengthy;
  lengthy.text.assign(kMaxStatedIntentBytes + 1, 'x');
  const auto refused = intent_text(lengthy);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("8193 bytes, at most 8192"));
}

}  // namespace
}  // namespace ikv::testing
