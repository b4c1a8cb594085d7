// What the roofline needs to know about the machine and the model file.
#pragma once

#include <string>

#include "base/result.h"
#include "bench_roofline.h"
#include "intentkv/config.h"

namespace ikv {

/// The processor's name as the system tells it, or "unknown".
std::string cpu_name();

/// Cores that this process may run on.
int usable_cores();

/// Measures memory read bandwidth and the peak of 8-bit products summed in 32 bits (VNNI, else
/// AVX2; 0 where neither is there), best of five; takes under a second.
MachineSpeed measure_machine(int num_threads);

/// The model's costs from its file, without the weights' bytes. Errors: those of opening it.
Result<ModelCosts> read_model_costs(const EngineConfig& config);

}  // namespace ikv
