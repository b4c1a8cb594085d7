// The plan covers every size at every depth; the report's figures follow from the samples.
#include "bench_report.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench_roofline.h"

namespace ikv {
namespace {

TEST(BenchPlan, CrossesSizesWithDepthsAndLeavesOutZeros) {
  std::vector<std::string> names;
  for (const BenchCase& one : plan_bench({512, 0}, {64}, {0, 7168})) names.push_back(one.name());
  EXPECT_EQ(names, (std::vector<std::string>{"pp512@0", "tg64@0", "pp512@7168", "tg64@7168"}));
}

TEST(BenchReport, MedianIsTheMiddle) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

TEST(BenchReport, JsonHasMedianExtremesAndRooflineFraction) {
  std::vector<BenchResult> results = {{{true, 512, 0}, {100, 300, 200}, 400},
                                      {{false, 64, 7168}, {50}, 0}};
  const nlohmann::ordered_json json = bench_to_json(results, {{"threads", 2}});
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["test"], "pp512@0");
  EXPECT_EQ(json[0]["tokens_per_second"], 200.0);
  EXPECT_EQ(json[0]["min"], 100.0);
  EXPECT_EQ(json[0]["max"], 300.0);
  EXPECT_EQ(json[0]["roofline_fraction"], 0.5);
  EXPECT_EQ(json[0]["settings"]["threads"], 2);
  EXPECT_EQ(json[1]["test"], "tg64@7168");
  EXPECT_TRUE(json[1]["roofline_fraction"].is_null());
}

TEST(BenchReport, TableHasOneRowPerResult) {
  const std::string table = bench_to_table({{{true, 512, 0}, {100, 300, 200}, 400}});
  EXPECT_NE(
      table.find("| pp512@0        |             200.0 |     100.0 |     300.0 |        50 % |"),
      std::string::npos)
      << table;
}

TEST(BenchRoofline, DecodeIsBandwidthOverBytesRead) {
  ModelCosts costs;
  costs.weight_bytes = 100e6;
  costs.kv_bytes_per_token = 20e3;
  const MachineSpeed speed = {30e9, 1e12};
  EXPECT_DOUBLE_EQ(roofline_tokens_per_second({false, 0, 0}, costs, speed), 300);
  // 64 tokens from 4,968 on: 5,000 cached tokens on average, as many bytes as the weights.
  EXPECT_DOUBLE_EQ(roofline_tokens_per_second({false, 64, 4968}, costs, speed), 150);
}

TEST(BenchRoofline, PrefillIsPeakOverOperations) {
  ModelCosts costs;
  costs.layer_products = 100e6;
  const MachineSpeed speed = {30e9, 1e12};
  EXPECT_DOUBLE_EQ(roofline_tokens_per_second({true, 512, 0}, costs, speed), 5000);
  costs.attention_products = 1000;
  const double deep = roofline_tokens_per_second({true, 512, 7168}, costs, speed);
  EXPECT_NEAR(deep, 1e12 / (2 * (100e6 + 1000 * (7168 + 256.5))), 1e-6);
}

TEST(BenchRoofline, UnknownSpeedGivesNoRoofline) {
  EXPECT_EQ(roofline_tokens_per_second({true, 512, 0}, {1, 1, 1, 1, 1}, {}), 0);
  EXPECT_EQ(roofline_tokens_per_second({false, 64, 0}, {}, {1, 1}), 0);
}

}  // namespace
}  // namespace ikv
