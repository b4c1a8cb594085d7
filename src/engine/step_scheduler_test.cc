#include "engine/step_scheduler.h"

#include <gtest/gtest.h>

namespace ikv {
namespace {

TEST(StepScheduler, DecodesAlwaysRunBesideAFullPrefillChunk) {
  StepScheduler scheduler(512);
  const std::vector<SchedulableRequest> requests = {{0, true}, {5000, false}, {0, true}};
  const StepPlan plan = scheduler.plan(requests);
  EXPECT_EQ(plan.num_tokens, (std::vector<int32_t>{1, 512, 1}));
  EXPECT_EQ(plan.total_tokens, 514);
}

TEST(StepScheduler, PrefillsShareTheBudgetAndShortOnesReturnTheirRest) {
  StepScheduler scheduler(300);
  const std::vector<SchedulableRequest> requests = {{1000, false}, {10, false}, {1000, false}};
  const StepPlan plan = scheduler.plan(requests);
  EXPECT_EQ(plan.num_tokens, (std::vector<int32_t>{145, 10, 145}));
}

TEST(StepScheduler, LeftoversRotateSoThatNobodyStarves) {
  StepScheduler scheduler(2);
  const std::vector<SchedulableRequest> requests = {{9, false}, {9, false}, {9, false}};
  std::vector<int32_t> total(3, 0);
  for (int step = 0; step < 9; ++step) {
    const StepPlan plan = scheduler.plan(requests);
    EXPECT_EQ(plan.total_tokens, 2);
    for (size_t i = 0; i < 3; ++i) total[i] += plan.num_tokens[i];
  }
  EXPECT_EQ(total, (std::vector<int32_t>{6, 6, 6}));
}

TEST(StepScheduler, NothingToDoIsAnEmptyPlan) {
  StepScheduler scheduler(8);
  EXPECT_EQ(scheduler.plan({}).total_tokens, 0);
  const std::vector<SchedulableRequest> idle = {{0, false}};
  EXPECT_EQ(scheduler.plan(idle).total_tokens, 0);
}

}  // namespace
}  // namespace ikv
