// The kernels of one instruction set; internal to ops.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_isa.h"
#include "ops/packed_format.h"

namespace ikv {

// Rows of activations for quantised weights: x = scale * value with 16-bit values, one scale a row.
// Eight bits lose too much (mean KL of 2e-3 on SmolLM2-135M; sixteen: 4e-6). A value is
// 256 * high + low with both parts in eight signed bits, so that 8-bit dots take it in two.
//
// A row's record: float scale, padded to 64 bytes; the sum of each 16 values, as floats; the sum of
// each 32; padded to 64 bytes; the values, 8 bytes for each four inputs in an order that the
// kernels choose. All sums of integers are below 2^24, hence exact.
struct QuantisedRows {
  const std::byte* data = nullptr;
  size_t stride = 0;  // bytes from row to row
  size_t num_inputs = 0;

  const std::byte* row(size_t index) const { return data + index * stride; }
};

constexpr size_t kRowSumsAt = 64;

constexpr size_t row_sums32_at(size_t num_inputs) {
  return kRowSumsAt + num_inputs / 16 * sizeof(float);
}

constexpr size_t row_values_at(size_t num_inputs) {
  return (row_sums32_at(num_inputs) + num_inputs / 32 * sizeof(float) + 63) / 64 * 64;
}

constexpr size_t row_record_bytes(size_t num_inputs) {
  return (row_values_at(num_inputs) + 2 * num_inputs + 63) / 64 * 64;
}

// Largest magnitude of a value: 127 * 256 + 127.
constexpr float kLargestValue = 32639.0f;
// Rows of nothing but smaller numbers count as zeros; the reciprocal of their scale would overflow.
constexpr float kSmallestMagnitude = 1e-30f;

// The scale of a row whose largest magnitude has these bits, and its reciprocal. A row with an
// infinity or NaN gets a NaN for a scale, which makes all of its results NaN and no other row's.
struct RowScale {
  float scale;
  float inverse;
};
RowScale row_scale(uint32_t largest_bits);

// One panel of weights times some rows.
struct PanelProduct {
  const PackedFormat* format;
  const std::byte* panel;
  size_t num_chunks;
  QuantisedRows rows;  // quantised weights
  const float* x;      // floats: [num_rows][num_inputs]
  size_t num_rows;
  float* out;          // first row, first output of the panel
  size_t out_stride;   // floats from row to row
  size_t num_outputs;  // valid ones, 1..32
};

// Every set computes, bit for bit, the same: for each output over ascending groups
//   acc = fma(float(integer dot), scale, acc); acc = fma(float(sum of values), minimum, acc)
// then acc * row scale. Float weights: acc = fma(weight, x, acc) over ascending inputs.
struct MatmulKernels {
  CpuIsa isa;
  // `record`: row_record_bytes(num_inputs), 64-byte aligned; num_inputs a multiple of 32.
  void (*quantise_row)(const float* x, size_t num_inputs, std::byte* record);
  void (*multiply_quantised)(const PanelProduct& product);
  void (*multiply_floats)(const PanelProduct& product);
};

const MatmulKernels& scalar_kernels();
const MatmulKernels& avx2_kernels();
const MatmulKernels& avx512vnni_kernels();

// Those of cpu_isa().
const MatmulKernels& matmul_kernels();

}  // namespace ikv
