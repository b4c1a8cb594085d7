// Tables and JSON of `intentkv bench`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench_plan.h"

namespace ikv {

/// The middle value; of an even number the mean of the two middle ones; 0 of none.
double median(std::vector<double> values);

/// [{test, tokens_per_second, min, max, roofline_fraction, samples, settings}], roofline_fraction
/// null where the machine's peak is unknown.
nlohmann::ordered_json bench_to_json(const std::vector<BenchResult>& results,
                                     const nlohmann::ordered_json& settings);

/// The same for people: a Markdown table, which reads well as plain text too.
std::string bench_to_table(const std::vector<BenchResult>& results);

}  // namespace ikv
