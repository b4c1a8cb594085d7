// Root-mean-square normalisation of rows.
#pragma once

#include <cstddef>

#include "base/thread_pool.h"

namespace ikv {

/// out[row][i] = x[row][i] * weight[i] / sqrt(mean of squares of x[row] + epsilon). `x` and `out`:
/// [num_rows][width], may be the same. Squares are summed in float in 16 partial sums and a fixed
/// order: a row gives the same bits alone and in any batch, on every instruction set.
/// (Zhang and Sennrich, Root Mean Square Layer Normalization, 2019.)
void rms_norm(const float* x, const float* weight, size_t num_rows, size_t width, float epsilon,
              float* out, ThreadPool& threads);

}  // namespace ikv
