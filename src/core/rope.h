// Rotation of a query or key to any position, away from the step loop.
#pragma once

#include <cstdint>
#include <vector>

#include "core/attention_spec.h"

namespace ikv {

/// Cosines and sines of one position, the magnitude multiplied in; num_dims / 2 of each.
struct RopeAngles {
  std::vector<float> cosines, sines;
};

/// Fills `angles` for `position`, which may be negative (the difference of two positions). Angles
/// are computed in double: at position 8,000 a float's is off by 2e-4 in the fastest pair.
void make_rope_angles(const RopeSpec& rope, int64_t position, RopeAngles& angles);

/// Rotates `num_heads` heads of `head_dim` floats in place (Su et al. 2021, section 3.4).
void rotate_rope(const RopeSpec& rope, const RopeAngles& angles, int num_heads, int head_dim,
                 float* x);

}  // namespace ikv
