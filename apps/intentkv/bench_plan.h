// What `intentkv bench` measures, and what comes out: plain data, no engine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ikv {

/// One measurement: so many tokens, evaluated as a prompt or generated, after `depth` cached
/// tokens.
struct BenchCase {
  bool prefill = true;
  int num_tokens = 0;
  int depth = 0;

  /// "pp512@0", "tg64@7168".
  std::string name() const;
};

/// Every prompt size and every generation size at every depth, in llama-bench's order. Zero sizes
/// are left out.
std::vector<BenchCase> plan_bench(const std::vector<int>& prompt_sizes,
                                  const std::vector<int>& generation_sizes,
                                  const std::vector<int>& depths);

/// A case with its repetitions.
struct BenchResult {
  BenchCase bench_case;
  std::vector<double> tokens_per_second;  ///< one per repetition
  double roofline_tokens_per_second = 0;  ///< what the machine's peak allows; 0: unknown
};

}  // namespace ikv
