// Element-wise steps between the matrix products.
#pragma once

#include <cstddef>

#include "base/thread_pool.h"
#include "model/decoder_spec.h"

namespace ikv {

/// gates[i] = f(gates[i]) * up[i] on this thread, vectorised for this CPU. Within about 1e-6 of
/// gate_value_reference() relative to |gate * up|; a value does not depend on its place.
void gate_values(GateActivation activation, float* gates, const float* up, size_t size);

/// The definition, for tests.
double gate_value_reference(GateActivation activation, double gate, double up);

/// gate_values() spread over threads.
void gate_rows(GateActivation activation, float* gates, const float* up, size_t size,
               ThreadPool& threads);

/// x[i] += branch[i], spread over threads.
void add_in_place(const float* branch, size_t size, float* x, ThreadPool& threads);

}  // namespace ikv
