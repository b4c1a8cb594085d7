// Products of packed weights and rows of activations.
#pragma once

#include <cstddef>
#include <span>

#include "base/thread_pool.h"
#include "ops/packed_matrix.h"

namespace ikv {

/// Scratch that multiply() needs for so many rows; 0 is possible. A multiple of 64.
size_t matmul_scratch_bytes(size_t num_inputs, size_t num_rows);

/// outs[i][row][o] = the product of row `o` of matrices[i] with x[row], for all matrices, which
/// share their input: it is brought to the kernels' form once, into `scratch` (64-byte aligned).
/// `x`: [num_rows][num_inputs]; outs[i]: [num_rows][matrices[i]->num_outputs()].
///
/// A row's result is the same, bit for bit, alone and in any batch, with any number of threads and
/// on every instruction set. With quantised weights a row is rounded to 16 bits and one scale; rows
/// with an infinity or NaN give NaN. The number of rows chooses the loops: few rows run at memory
/// speed, many at the speed of the dot instructions.
void multiply(std::span<const PackedMatrix* const> matrices, const float* x, size_t num_rows,
              std::span<float* const> outs, std::byte* scratch, ThreadPool& threads);

}  // namespace ikv
