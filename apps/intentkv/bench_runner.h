// Runs the measurements of `intentkv bench` through the engine's public API, so that the figures
// hold for what a user of the engine gets.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "bench_plan.h"
#include "intentkv/engine.h"

namespace ikv {

/// Runs cases on one engine. Not thread-safe.
class BenchRunner {
 public:
  explicit BenchRunner(Engine& engine);

  /// One uncounted run and `repetitions` counted ones. The tokens before the measured ones come
  /// from the cache; an error tells when they did not fit there.
  Result<std::vector<double>> run(const BenchCase& bench_case, int repetitions);

 private:
  Result<Usage> evaluate(const BenchCase& bench_case, std::vector<int32_t> prompt,
                         int new_tokens) const;
  Result<double> run_once(const BenchCase& bench_case);
  int32_t random_token();

  Engine& engine_;
  int32_t vocab_size_;
  uint64_t random_state_ = 0x9E3779B97F4A7C15u;
  std::vector<int32_t> history_;  ///< the tokens that depths are made of; grows, never changes
};

}  // namespace ikv
