#include "model/elementwise.h"

#include <algorithm>
#include <cmath>

namespace ikv {
namespace {

// Work per task: large enough that handing it out costs nothing beside it. A decode row stays
// whole.
constexpr size_t kTaskElements = 8192;

template <typename Function>
void for_ranges(size_t size, ThreadPool& threads, const Function& function) {
  const size_t num_tasks = (size + kTaskElements - 1) / kTaskElements;
  threads.parallel_for(num_tasks, [&](size_t task, int) {
    function(task * kTaskElements, std::min(size, (task + 1) * kTaskElements));
  });
}

}  // namespace

double gate_value_reference(GateActivation activation, double gate, double up) {
  constexpr double kSqrt2OverPi = 0.79788456080286536;
  const double cube = gate * gate * gate;
  const double share = activation == GateActivation::kSilu
                           ? 1.0 / (1.0 + std::exp(-gate))
                           : 0.5 * (1.0 + std::tanh(kSqrt2OverPi * (gate + 0.044715 * cube)));
  return gate * share * up;
}

void gate_rows(GateActivation activation, float* gates, const float* up, size_t size,
               ThreadPool& threads) {
  for_ranges(size, threads, [&](size_t begin, size_t end) {
    gate_values(activation, gates + begin, up + begin, end - begin);
  });
}

void add_in_place(const float* branch, size_t size, float* x, ThreadPool& threads) {
  for_ranges(size, threads, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) x[i] += branch[i];
  });
}

}  // namespace ikv
