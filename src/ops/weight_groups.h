// GGUF's quantised blocks as codes, scales and minima.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "gguf/types.h"

namespace ikv {

/// 32 consecutive weights of a row, in one or two groups. A weight is scale * code + min; of the K
/// formats scale * scales[group] * code + min * mins[group]. `scale` and `min` are halves. Formats
/// without minima leave those 0; see PackedFormat::offset.
struct WeightGroups {
  std::array<uint8_t, 32> codes;
  uint16_t scale;
  uint16_t min;
  std::array<int8_t, 2> scales;
  std::array<int8_t, 2> mins;
};

/// Reads the weights 32 * chunk .. + 31 of the row that starts at `row`, of a quantised type.
/// Formats: the block structs of ggml (ggml-common.h).
WeightGroups read_weight_groups(WeightType type, const std::byte* row, size_t chunk);

}  // namespace ikv
