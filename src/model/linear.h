// Linear: one weight matrix in the form that the chosen compute path multiplies with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/workspace.h"
#include "ops/packed_matrix.h"

namespace ikv {

/// y = W x + b. Holds either floats (reference path) or the kernels' own layout.
struct Linear {
  /// Row `index` of W as floats (an embedding's vector), [num_inputs].
  void unpack_row(size_t index, float* out) const;

  uint64_t size_bytes() const {
    return packed.size_bytes() + (floats.size() + bias.size()) * sizeof(float);
  }

  int num_outputs = 0;
  int num_inputs = 0;
  PackedMatrix packed;        ///< packed path only
  std::vector<float> floats;  ///< [num_outputs][num_inputs], reference path only
  std::vector<float> bias;    ///< empty or [num_outputs]
};

/// outs[i][row] = linears[i] x[row] for all rows and all of `linears`, which share their input, so
/// that it is quantised once. `x`: [num_rows][num_inputs]. All are of the same path; `workspace`
/// has room for `num_rows`.
void apply_linears(std::span<const Linear* const> linears, const float* x, size_t num_rows,
                   std::span<float* const> outs, Workspace& workspace);

/// One of them.
inline void apply_linear(const Linear& linear, const float* x, size_t num_rows, float* out,
                         Workspace& workspace) {
  const Linear* const linears[] = {&linear};
  float* const outs[] = {out};
  apply_linears(linears, x, num_rows, outs, workspace);
}

}  // namespace ikv
