#include "pruning/budget.h"

#include <gtest/gtest.h>

namespace ikv {
namespace {

TEST(AttendBudgetTest, SharesTokensAndMassAreRead) {
  auto share = parse_attend_budget("12.5 %");
  ASSERT_TRUE(share.ok()) << share.error().message;
  EXPECT_EQ(share->kind, AttendBudget::Kind::kShare);
  EXPECT_FLOAT_EQ(share->share, 0.125f);
  auto tokens = parse_attend_budget("900");
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(tokens->tokens, 900);
  auto mass = parse_attend_budget("mass=0.98");
  ASSERT_TRUE(mass.ok());
  EXPECT_FLOAT_EQ(mass->mass, 0.98f);
  EXPECT_EQ(parse_attend_budget("all")->kind, AttendBudget::Kind::kAll);
}

TEST(AttendBudgetTest, WhatIsReadIsPrintedTheSame) {
  for (const char* text : {"all", "12.5%", "900", "mass=0.98"}) {
    auto budget = parse_attend_budget(text);
    ASSERT_TRUE(budget.ok());
    EXPECT_EQ(to_string(*budget), text);
  }
}

TEST(AttendBudgetTest, NonsenseIsRefusedByName) {
  for (const char* text : {"0%", "-1%", "101%", "nan%", "%", "", "0", "-5", "1.5", "12 parsecs",
                           "mass=0", "mass=2", "mass=", "256MiB", "1e99"}) {
    auto budget = parse_attend_budget(text);
    ASSERT_FALSE(budget.ok()) << text;
    EXPECT_NE(budget.error().message.find("budget"), std::string::npos) << text;
  }
}

TEST(AttendBudgetTest, RealisedTokensRespectFloorAndAll) {
  AttendBudget budget;
  budget.kind = AttendBudget::Kind::kShare;
  budget.share = 0.125f;
  EXPECT_EQ(attend_tokens(budget, 100), 100);
  EXPECT_EQ(attend_tokens(budget, 1000), 512);
  EXPECT_EQ(attend_tokens(budget, 8000), 1000);
  EXPECT_EQ(attend_tokens(budget, 8001), 1001);
  budget.kind = AttendBudget::Kind::kTokens;
  budget.tokens = 700;
  EXPECT_EQ(attend_tokens(budget, 8000), 700);
}

TEST(AttendBudgetTest, ForcedTokensBeyondTheFloorAreRefusedWithBothFigures) {
  AttendBudget budget;
  budget.min_tokens = 100;
  const Status status = check_attend_budget(budget);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("160"), std::string::npos);
  EXPECT_NE(status.error().message.find("100"), std::string::npos);
}

TEST(ResidentBudgetTest, SharesAndBytesAreReadNonsenseIsNot) {
  EXPECT_FLOAT_EQ(parse_resident_budget("25%")->share, 0.25f);
  EXPECT_EQ(parse_resident_budget("256MiB")->bytes, 256u << 20);
  EXPECT_EQ(parse_resident_budget("all")->kind, ResidentBudget::Kind::kAll);
  for (const char* text : {"25", "0%", "-3MiB", "MiB", "1 furlong", "200%"}) {
    EXPECT_FALSE(parse_resident_budget(text).ok()) << text;
  }
}

}  // namespace
}  // namespace ikv
