#include "bench_plan.h"

namespace ikv {

std::string BenchCase::name() const {
  return (prefill ? "pp" : "tg") + std::to_string(num_tokens) + "@" + std::to_string(depth);
}

std::vector<BenchCase> plan_bench(const std::vector<int>& prompt_sizes,
                                  const std::vector<int>& generation_sizes,
                                  const std::vector<int>& depths) {
  std::vector<BenchCase> plan;
  for (int depth : depths) {
    for (int size : prompt_sizes) {
      if (size > 0) plan.push_back({true, size, depth});
    }
    for (int size : generation_sizes) {
      if (size > 0) plan.push_back({false, size, depth});
    }
  }
  return plan;
}

}  // namespace ikv
