#include "bench_roofline.h"

namespace ikv {
namespace {

double decode_roofline(const BenchCase& bench_case, const ModelCosts& costs, double bandwidth) {
  const double mean_length = bench_case.depth + 0.5 * bench_case.num_tokens;
  const double bytes = costs.weight_bytes + costs.kv_bytes_per_token * mean_length;
  return bytes > 0 ? bandwidth / bytes : 0;
}

double prefill_roofline(const BenchCase& bench_case, const ModelCosts& costs, double peak) {
  const double tokens = bench_case.num_tokens;
  const double pairs = tokens * bench_case.depth + 0.5 * tokens * (tokens + 1);  // causal
  const double products =
      tokens * costs.layer_products + costs.head_products + pairs * costs.attention_products;
  return products > 0 ? peak * tokens / (2 * products) : 0;
}

}  // namespace

double roofline_tokens_per_second(const BenchCase& bench_case, const ModelCosts& costs,
                                  const MachineSpeed& speed) {
  return bench_case.prefill ? prefill_roofline(bench_case, costs, speed.operations_per_second)
                            : decode_roofline(bench_case, costs, speed.bytes_per_second);
}

}  // namespace ikv
