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

/// Measures memory bandwidth and the widest arithmetic that the kernels use; takes about a second.
MachineSpeed measure_machine(int num_threads);

/// The model's costs from its file, without the weights' bytes. Errors: those of opening it.
Result<ModelCosts> read_model_costs(const EngineConfig& config);

}  // namespace ikv
