#include "bench_runner.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

namespace ikv {
namespace {

// A cache may keep whole blocks only, so a depth's rest may have to be evaluated again.
constexpr int kLargestBlockTokens = 128;

}  // namespace

BenchRunner::BenchRunner(Engine& engine)
    : engine_(engine), vocab_size_(std::max(1, engine.model_info().vocab_size)) {}

// xorshift64*: the same tokens on every machine, no need for quality.
int32_t BenchRunner::random_token() {
  random_state_ ^= random_state_ >> 12;
  random_state_ ^= random_state_ << 25;
  random_state_ ^= random_state_ >> 27;
  const uint64_t mixed = random_state_ * 0x2545F4914F6CDD1Du;
  return static_cast<int32_t>((mixed >> 33) % static_cast<uint64_t>(vocab_size_));
}

Result<Usage> BenchRunner::evaluate(const BenchCase& bench_case, std::vector<int32_t> prompt,
                                    int new_tokens) const {
  CompletionRequest request;
  request.prompt_tokens = std::move(prompt);
  request.generation.max_tokens = new_tokens;
  request.generation.temperature = 0;
  request.generation.ignore_eos = true;
  Result<std::shared_ptr<Generation>> generation = engine_.complete(std::move(request));
  if (!generation.ok()) {
    return make_error(generation.error().code,
                      bench_case.name() + ": " + generation.error().message);
  }
  Result<GenerationResult> result = generation.value()->wait();
  if (!result.ok()) {
    return make_error(result.error().code, bench_case.name() + ": " + result.error().message);
  }
  return result->usage;
}

Result<double> BenchRunner::run_once(const BenchCase& bench_case) {
  std::vector<int32_t> prompt(history_.begin(), history_.begin() + bench_case.depth);
  // Fresh tokens each time, or the cache would answer. A decode needs one to start from.
  const int fresh = bench_case.prefill ? bench_case.num_tokens : 1;
  for (int i = 0; i < fresh; ++i) prompt.push_back(random_token());
  // The first new token belongs to the prefill; decoding n tokens takes n more.
  const int new_tokens = bench_case.prefill ? 1 : bench_case.num_tokens + 1;
  Result<Usage> usage = evaluate(bench_case, std::move(prompt), new_tokens);
  if (!usage.ok()) return usage.error();
  if (usage->cached_tokens + kLargestBlockTokens < bench_case.depth) {
    return make_error(ErrorCode::kOutOfMemory,
                      bench_case.name() + ": only " + std::to_string(usage->cached_tokens) +
                          " tokens were still in the cache; raise --kv-memory");
  }
  const int64_t us =
      std::max<int64_t>(1, bench_case.prefill ? usage->prefill_us : usage->decode_us);
  const int tokens = bench_case.prefill ? usage->evaluated_tokens : usage->completion_tokens - 1;
  return tokens * 1e6 / static_cast<double>(us);
}

Result<std::vector<double>> BenchRunner::run(const BenchCase& bench_case, int repetitions) {
  while (static_cast<int>(history_.size()) < bench_case.depth) history_.push_back(random_token());
  if (bench_case.depth > 0) {
    std::vector<int32_t> prefix(history_.begin(), history_.begin() + bench_case.depth);
    Result<Usage> filled = evaluate(bench_case, std::move(prefix), 1);
    if (!filled.ok()) return filled.error();
  }
  Result<double> warm_up = run_once(bench_case);
  if (!warm_up.ok()) return warm_up.error();
  std::vector<double> speeds;
  for (int i = 0; i < repetitions; ++i) {
    Result<double> speed = run_once(bench_case);
    if (!speed.ok()) return speed.error();
    speeds.push_back(*speed);
  }
  return speeds;
}

}  // namespace ikv
