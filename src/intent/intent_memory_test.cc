// What is remembered of earlier turns, how it fades, and how far intents lie apart.
#include "intent/intent_memory.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numeric>

#include "intent/test_queries.h"

namespace ikv::testing {
namespace {

IntentMemory make_memory(IntentMemoryOptions options = {}) {
  auto memory = IntentMemory::create(test_shapes(), options);
  EXPECT_TRUE(memory.ok());
  return std::move(memory).value();
}

float total_weight(const WeightedQueries& queries) {
  return std::accumulate(queries.weights.begin(), queries.weights.end(), 0.0f);
}

TEST(IntentMemory, RecallsEachPhasesRowsAsTheyWere) {
  IntentMemory memory = make_memory();
  const IntentQueries user = random_intent(3, 1);
  const IntentQueries tool = random_intent(2, 2);
  ASSERT_TRUE(memory.remember(IntentPhase::kUser, user).ok());
  ASSERT_TRUE(memory.remember(IntentPhase::kTool, tool).ok());
  const WeightedQueries recalled = memory.recall(IntentPhase::kTool);
  EXPECT_EQ(recalled.source, IntentSource::kMemory);
  EXPECT_EQ(recalled.queries.num_rows, 2u);
  EXPECT_EQ(recalled.queries.layers, tool.layers);
  EXPECT_EQ(memory.recall().queries.num_rows, 5u);
  EXPECT_EQ(memory.num_rows(IntentPhase::kThink), 0u);
  EXPECT_EQ(memory.size_bytes(), 5u * 64 * sizeof(float));
  memory.clear();
  EXPECT_EQ(memory.recall().queries.num_rows, 0u);
}

TEST(IntentMemory, ItsSizeIsBoundedHoweverLongTheSession) {
  IntentMemoryOptions options;
  options.rows_per_phase = 5;
  options.forget_below = 0.0f;
  IntentMemory memory = make_memory(options);
  for (uint32_t turn = 0; turn < 200; ++turn) {
    ASSERT_TRUE(memory.remember(IntentPhase::kAct, random_intent(4, turn)).ok());
    memory.end_turn();
    ASSERT_LE(memory.num_rows(IntentPhase::kAct), 5u);
  }
  EXPECT_LE(memory.size_bytes(), 5u * 64 * sizeof(float));
}

TEST(IntentMemory, AlikeRowsBecomeOneAndTheRareOneStays) {
  IntentMemoryOptions options;
  options.rows_per_phase = 2;
  IntentMemory memory = make_memory(options);
  const IntentQueries rare = random_intent(1, 7);
  const IntentQueries common = random_intent(1, 8);
  ASSERT_TRUE(memory.remember(IntentPhase::kUser, rare).ok());
  for (int i = 0; i < 3; ++i) {
    IntentQueries near = common;
    for (auto& layer : near.layers) layer[0] += 0.01f * static_cast<float>(i);
    ASSERT_TRUE(memory.remember(IntentPhase::kUser, near).ok());
  }
  const WeightedQueries recalled = memory.recall(IntentPhase::kUser);
  ASSERT_EQ(recalled.queries.num_rows, 2u);
  EXPECT_EQ(std::vector<float>(recalled.queries.layers[0].begin(),
                               recalled.queries.layers[0].begin() + 32),
            rare.layers[0]);
  // The mean of three that differ by 0, 0.01 and 0.02, with the weight of all.
  EXPECT_NEAR(recalled.queries.row(0, 1)[0], common.layers[0][0] + 0.01f, 1e-5);
  EXPECT_FLOAT_EQ(recalled.weights[0], 1.0f);
  EXPECT_FLOAT_EQ(recalled.weights[1], 3.0f);
}

TEST(IntentMemory, WeightsDecayByTurnAndLightRowsAreForgotten) {
  IntentMemoryOptions options;
  options.decay = 0.5f;
  options.forget_below = 0.1f;
  IntentMemory memory = make_memory(options);
  ASSERT_TRUE(memory.remember(IntentPhase::kUser, random_intent(2, 1)).ok());
  EXPECT_FLOAT_EQ(total_weight(memory.recall()), 1.0f) << "a span weighs 1 however many rows";
  memory.end_turn();
  EXPECT_FLOAT_EQ(total_weight(memory.recall()), 0.5f);
  ASSERT_TRUE(memory.remember(IntentPhase::kTool, random_intent(1, 2)).ok());
  memory.end_turn();
  EXPECT_FLOAT_EQ(total_weight(memory.recall(IntentPhase::kUser)), 0.25f);
  EXPECT_FLOAT_EQ(total_weight(memory.recall(IntentPhase::kTool)), 0.5f);
  memory.end_turn();
  EXPECT_EQ(memory.num_rows(IntentPhase::kUser), 0u);
  EXPECT_EQ(memory.num_rows(IntentPhase::kTool), 1u);
}

TEST(IntentMemory, ServesAsASourceOfAnIntent) {
  IntentMemory memory = make_memory();
  ASSERT_TRUE(memory.remember(IntentPhase::kUser, random_intent(2, 1)).ok());
  IntentMix mix;
  mix.memory = 0.25f;
  const auto intent =
      build_intent(mix, {{IntentSource::kSpan, random_intent(4, 2), {}}, memory.recall()});
  ASSERT_TRUE(intent.ok()) << intent.error().message;
  EXPECT_EQ(intent->queries.num_rows, 6u);
  EXPECT_NEAR(intent->weights[5], 0.1f, 1e-6);
}

TEST(IntentMemory, OptionsAndShapesAreChecked) {
  const auto refused = [](IntentMemoryOptions options) {
    return !IntentMemory::create(test_shapes(), options).ok();
  };
  EXPECT_TRUE(refused({.rows_per_phase = 0}));
  EXPECT_TRUE(refused({.decay = 1.5f}));
  EXPECT_TRUE(refused({.decay = NAN}));
  EXPECT_TRUE(refused({.forget_below = -1.0f}));
  EXPECT_FALSE(refused({.decay = 1.0f}));
  IntentMemory memory = make_memory();
  IntentQueries other = random_intent(1, 1);
  other.shapes[1].head_dim = 8;
  EXPECT_FALSE(memory.remember(IntentPhase::kUser, other).ok());
}

TEST(IntentPhases, FollowRoleAndToolCalls) {
  EXPECT_EQ(intent_phase(Role::kUser, false), IntentPhase::kUser);
  EXPECT_EQ(intent_phase(Role::kSystem, false), IntentPhase::kUser);
  EXPECT_EQ(intent_phase(Role::kAssistant, false), IntentPhase::kThink);
  EXPECT_EQ(intent_phase(Role::kAssistant, true), IntentPhase::kAct);
  EXPECT_EQ(intent_phase(Role::kTool, false), IntentPhase::kTool);
  EXPECT_EQ(intent_phase_name(IntentPhase::kAct), "act");
}

TEST(IntentSimilarity, IsOneForTheSameMinusOneForTheOppositeAndNearZeroForOthers) {
  const IntentQueries a = random_intent(4, 1);
  IntentQueries opposite = a;
  for (auto& layer : opposite.layers) {
    for (float& x : layer) x *= -2.0f;
  }
  EXPECT_NEAR(*intent_similarity(a, a), 1.0f, 1e-5);
  EXPECT_NEAR(*intent_similarity(a, opposite), -1.0f, 1e-5);
  EXPECT_LT(std::abs(*intent_similarity(a, random_intent(4, 2))), 0.5f);
  EXPECT_FALSE(intent_similarity(a, random_intent(0, 2)).ok());
}

TEST(IntentDrift, ComparesEachTurnWithTheOneBefore) {
  IntentDrift drift;
  const IntentQueries a = random_intent(2, 1);
  const IntentQueries b = random_intent(2, 2);
  EXPECT_FALSE(drift.update(a).has_value());
  EXPECT_NEAR(drift.update(a).value(), 1.0f, 1e-5);
  EXPECT_NEAR(drift.update(b).value(), *intent_similarity(a, b), 1e-6);
  EXPECT_FALSE(drift.update(random_intent(0, 3)).has_value()) << "nothing to compare";
  EXPECT_NEAR(drift.update(b).value(), 1.0f, 1e-5) << "an empty turn changes nothing";
}

}  // namespace
}  // namespace ikv::testing
