// What the machine would allow: the simple roofline model of one benchmark case.
#pragma once

#include "bench_plan.h"

namespace ikv {

/// What one token costs, from the model's shape. Products count once (a multiply-add is 2
/// operations).
struct ModelCosts {
  double weight_bytes = 0;        ///< read once per decode step
  double kv_bytes_per_token = 0;  ///< keys and values of all layers, at the cache's formats
  double layer_products = 0;      ///< per token, without the output head
  double head_products = 0;       ///< per token whose logits are wanted
  double attention_products = 0;  ///< per pair of a query token and a key token
};

/// What was measured on this machine with the threads in use.
struct MachineSpeed {
  double bytes_per_second = 0;
  double operations_per_second = 0;
};

/// Tokens/s if nothing but the memory bandwidth (decode: weights and cached keys and values, read
/// once) or the arithmetic peak (prefill: matrix products and attention) were the limit. 0 if the
/// speed is unknown.
double roofline_tokens_per_second(const BenchCase& bench_case, const ModelCosts& costs,
                                  const MachineSpeed& speed);

}  // namespace ikv
