#include "ops/matmul.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/kernels.h"

namespace ikv {
namespace {

// So few rows are brought to the kernels' form by the caller alone: sharing out would cost more.
constexpr size_t kManyRows = 8;
// Inputs that a task brings to that form, and products that a task makes: about 5 and 10 µs.
constexpr size_t kTaskInputs = 16384;
constexpr size_t kTaskProducts = size_t{2} << 20;
// Rows a task of a large batch: enough that unpacking a panel costs little beside its products.
constexpr size_t kRowBlock = 120;
// Tasks each thread gets on average: one that is held up by another program loses little.
constexpr size_t kTasksPerThread = 4;

void quantise_rows(const MatmulKernels& kernels, const float* x, size_t num_rows,
                   QuantisedRows rows, std::byte* scratch, ThreadPool& threads) {
  const auto quantise = [&](size_t row) {
    kernels.quantise_row(x + row * rows.num_inputs, rows.num_inputs, scratch + row * rows.stride);
  };
  const size_t rows_a_task =
      num_rows < kManyRows ? num_rows : std::max<size_t>(1, kTaskInputs / rows.num_inputs);
  threads.parallel_for((num_rows + rows_a_task - 1) / rows_a_task, [&](size_t task, int) {
    const size_t end = std::min(num_rows, (task + 1) * rows_a_task);
    for (size_t row = task * rows_a_task; row < end; ++row) quantise(row);
  });
}

// The panels of several matrices as one list.
class PanelList {
 public:
  PanelList(std::span<const PackedMatrix* const> matrices, std::span<float* const> outs)
      : matrices_(matrices), outs_(outs) {
    for (const PackedMatrix* matrix : matrices) num_panels_ += matrix->num_panels();
  }

  size_t size() const { return num_panels_; }

  // Panel `index` times the rows [first_row, end_row).
  void multiply(const MatmulKernels& kernels, size_t index, const QuantisedRows& rows,
                const float* x, size_t first_row, size_t end_row) const {
    size_t m = 0;
    while (index >= matrices_[m]->num_panels()) index -= matrices_[m++]->num_panels();
    const PackedMatrix& matrix = *matrices_[m];
    const size_t first_output = index * kPanelOutputs;
    PanelProduct product{
        .format = &matrix.format(),
        .panel = matrix.panel(index),
        .num_chunks = matrix.num_chunks(),
        .rows = {rows.row(first_row), rows.stride, rows.num_inputs},
        .x = x + first_row * matrix.num_inputs(),
        .num_rows = end_row - first_row,
        .out = outs_[m] + first_row * matrix.num_outputs() + first_output,
        .out_stride = matrix.num_outputs(),
        .num_outputs = std::min(kPanelOutputs, matrix.num_outputs() - first_output)};
    if (matrix.format().quantised()) {
      kernels.multiply_quantised(product);
    } else {
      kernels.multiply_floats(product);
    }
  }

 private:
  std::span<const PackedMatrix* const> matrices_;
  std::span<float* const> outs_;
  size_t num_panels_ = 0;
};

}  // namespace

RowScale row_scale(uint32_t largest_bits) {
  if (largest_bits >= 0x7F800000u) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
  const float largest = std::bit_cast<float>(largest_bits);
  if (largest < kSmallestMagnitude) return {0.0f, 0.0f};
  return {largest / kLargestValue, kLargestValue / largest};
}

const MatmulKernels& matmul_kernels() {
#if defined(__x86_64__)
  switch (cpu_isa()) {
    case CpuIsa::kAvx512Vnni:
      return avx512vnni_kernels();
    case CpuIsa::kAvx2:
      return avx2_kernels();
    case CpuIsa::kScalar:
      break;
  }
#endif
  return scalar_kernels();
}

size_t matmul_scratch_bytes(size_t num_inputs, size_t num_rows) {
  return row_record_bytes(num_inputs / kChunkInputs * kChunkInputs) * num_rows;
}

void multiply(std::span<const PackedMatrix* const> matrices, const float* x, size_t num_rows,
              std::span<float* const> outs, std::byte* scratch, ThreadPool& threads) {
  if (matrices.empty() || num_rows == 0) return;
  const MatmulKernels& kernels = matmul_kernels();
  const size_t num_inputs = matrices.front()->num_inputs();
  bool any_quantised = false;
  for (const PackedMatrix* matrix : matrices) {
    IKV_CHECK(matrix->num_inputs() == num_inputs);
    any_quantised |= matrix->format().quantised();
  }
  QuantisedRows rows;
  if (any_quantised) {
    rows = {scratch, row_record_bytes(num_inputs), num_inputs};
    quantise_rows(kernels, x, num_rows, rows, scratch, threads);
  }
  const PanelList panels(matrices, outs);
  const size_t wanted_tasks = static_cast<size_t>(threads.num_threads()) * kTasksPerThread;
  // Whole columns of panels where they are enough to share out; else rows are split too.
  const size_t row_blocks =
      panels.size() >= wanted_tasks ? 1 : (num_rows + kRowBlock - 1) / kRowBlock;
  const size_t rows_a_block = (num_rows + row_blocks - 1) / row_blocks;
  const size_t products = num_rows * panels.size() * kPanelOutputs * num_inputs;
  const size_t panel_ranges =
      std::min(panels.size(), std::max(wanted_tasks, products / kTaskProducts));
  threads.parallel_for(panel_ranges * row_blocks, [&](size_t task, int) {
    const size_t range = task / row_blocks;
    const size_t first_row = task % row_blocks * rows_a_block;
    const size_t end_row = std::min(num_rows, first_row + rows_a_block);
    if (first_row >= end_row) return;
    const size_t end = panels.size() * (range + 1) / panel_ranges;
    for (size_t p = panels.size() * range / panel_ranges; p < end; ++p) {
      panels.multiply(kernels, p, rows, x, first_row, end_row);
    }
  });
}

}  // namespace ikv
