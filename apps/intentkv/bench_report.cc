#include "bench_report.h"

#include <algorithm>
#include <cstdio>

namespace ikv {
namespace {

struct Summary {
  double median = 0;
  double min = 0;
  double max = 0;
};

Summary summarise(const BenchResult& result) {
  const std::vector<double>& speeds = result.tokens_per_second;
  if (speeds.empty()) return {};
  auto [low, high] = std::minmax_element(speeds.begin(), speeds.end());
  return {median(speeds), *low, *high};
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  if (values.size() % 2 == 1) return values[middle];
  return (values[middle - 1] + values[middle]) / 2;
}

nlohmann::ordered_json bench_to_json(const std::vector<BenchResult>& results,
                                     const nlohmann::ordered_json& settings) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchResult& result : results) {
    const Summary summary = summarise(result);
    nlohmann::ordered_json row = {{"test", result.bench_case.name()},
                                  {"tokens_per_second", summary.median},
                                  {"min", summary.min},
                                  {"max", summary.max},
                                  {"roofline_fraction", nullptr},
                                  {"samples", result.tokens_per_second},
                                  {"settings", settings}};
    if (result.roofline_tokens_per_second > 0) {
      row["roofline_fraction"] = summary.median / result.roofline_tokens_per_second;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string bench_to_table(const std::vector<BenchResult>& results) {
  std::string table =
      "| test           | tokens/s (median) |       min |       max | of roofline |\n"
      "|----------------|------------------:|----------:|----------:|------------:|\n";
  for (const BenchResult& result : results) {
    const Summary summary = summarise(result);
    char fraction[16] = "?";
    if (result.roofline_tokens_per_second > 0) {
      std::snprintf(fraction, sizeof fraction, "%.0f %%",
                    100 * summary.median / result.roofline_tokens_per_second);
    }
    char row[160];
    std::snprintf(row, sizeof row, "| %-14s | %17.1f | %9.1f | %9.1f | %11s |\n",
                  result.bench_case.name().c_str(), summary.median, summary.min, summary.max,
                  fraction);
    table += row;
  }
  return table;
}

}  // namespace ikv
