#include "model/linear.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "ops/matmul.h"

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

// Models have at most three matrices on one input (Q, K, V).
constexpr size_t kMaxShared = 4;

void multiply_packed(std::span<const Linear* const> linears, const float* x, size_t num_rows,
                     std::span<float* const> outs, Workspace& workspace) {
  IKV_CHECK(linears.size() <= kMaxShared);
  std::array<const PackedMatrix*, kMaxShared> matrices{};
  for (size_t i = 0; i < linears.size(); ++i) matrices[i] = &linears[i]->packed;
  multiply(std::span(matrices).first(linears.size()), x, num_rows, outs, workspace.matmul_scratch,
           workspace.threads());
}

void add_bias(const Linear& linear, size_t num_rows, float* out) {
  if (linear.bias.empty()) return;
  for (size_t row = 0; row < num_rows; ++row, out += linear.bias.size()) {
    for (size_t o = 0; o < linear.bias.size(); ++o) out[o] += linear.bias[o];
  }
}

}  // namespace

void Linear::unpack_row(size_t index, float* out) const {
  if (floats.empty()) return packed.unpack_row(index, out);
  const size_t width = static_cast<size_t>(num_inputs);
  std::copy_n(floats.data() + index * width, width, out);
}

void apply_linears(std::span<const Linear* const> linears, const float* x, size_t num_rows,
                   std::span<float* const> outs, Workspace& workspace) {
  const bool packed = linears.front()->floats.empty();
  if (packed) multiply_packed(linears, x, num_rows, outs, workspace);
  for (size_t i = 0; i < linears.size(); ++i) {
    if (!packed) multiply_floats(*linears[i], x, num_rows, outs[i], workspace.threads());
    add_bias(*linears[i], num_rows, outs[i]);
  }
}

}  // namespace ikv
