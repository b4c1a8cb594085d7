// The plan covers every size at every depth; the report's figures follow from the samples.
#include "bench_report.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

}  // namespace
}  // namespace ikv
