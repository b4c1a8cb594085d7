// From floats to the simpler weight formats, for tests that need known values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "gguf/types.h"

namespace ikv::testing {

/// Nearest half, ties to even; too large becomes infinite.
uint16_t float_to_half(float value);

/// `values` as blocks of F32, F16, BF16, Q8_0, Q4_0 or Q4_1, each value rounded to the nearest that
/// its block can hold. Values are finite, their number a multiple of the block. Other formats are a
/// bug of the test.
std::vector<std::byte> quantise(WeightType type, std::span<const float> values);

}  // namespace ikv::testing
