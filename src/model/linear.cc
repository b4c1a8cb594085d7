#include "model/linear.h"

#include <algorithm>
#include <array>

namespace ikv {
namespace {

constexpr size_t kTaskOutputs = 32;

// Sixteen partial sums in a fixed order: vectors without -ffast-math.
float dot(const float* a, const float* b, size_t size) {
  std::array<float, 16> sums{};
  size_t i = 0;
  for (; i + 16 <= size; i += 16) {
    for (size_t j = 0; j < 16; ++j) sums[j] += a[i + j] * b[i + j];
  }
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  for (; i < size; ++i) total += a[i] * b[i];
  return total;
}

void multiply_floats(const Linear& linear, const float* x, size_t num_rows, float* out,
                     ThreadPool& threads) {
  const size_t num_outputs = static_cast<size_t>(linear.num_outputs);
  const size_t num_inputs = static_cast<size_t>(linear.num_inputs);
  const size_t num_tasks = (num_outputs + kTaskOutputs - 1) / kTaskOutputs;
  threads.parallel_for(num_tasks, [&](size_t task, int) {
    const size_t begin = task * kTaskOutputs;
    const size_t end = std::min(num_outputs, begin + kTaskOutputs);
    for (size_t row = 0; row < num_rows; ++row) {
      for (size_t o = begin; o < end; ++o) {
        out[row * num_outputs + o] =
            dot(linear.floats.data() + o * num_inputs, x + row * num_inputs, num_inputs);
      }
    }
  });
}

void add_bias(const Linear& linear, size_t num_rows, float* out) {
  if (linear.bias.empty()) return;
  for (size_t row = 0; row < num_rows; ++row, out += linear.bias.size()) {
    for (size_t o = 0; o < linear.bias.size(); ++o) out[o] += linear.bias[o];
  }
}

}  // namespace

void Linear::unpack_row(size_t index, float* out) const {
  const size_t width = static_cast<size_t>(num_inputs);
  std::copy_n(floats.data() + index * width, width, out);
}

void apply_linears(std::span<const Linear* const> linears, const float* x, size_t num_rows,
                   std::span<float* const> outs, ThreadPool& threads) {
  for (size_t i = 0; i < linears.size(); ++i) {
    multiply_floats(*linears[i], x, num_rows, outs[i], threads);
    add_bias(*linears[i], num_rows, outs[i]);
  }
}

}  // namespace ikv
