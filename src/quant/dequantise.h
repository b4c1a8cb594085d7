// Weights of GGUF's formats as floats.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gguf/types.h"

namespace ikv {

/// IEEE half to float: exact, subnormals and infinities included.
float half_to_float(uint16_t half);

/// `num_elements` (a multiple of the type's block; anything else is the caller's bug) from
/// `source`, which needs no alignment, to `out`. Plain loops, for loading and tests; thread-safe.
/// Formats: the block structs of ggml (ggml-common.h), values as the `gguf` Python package decodes
/// them.
void dequantise(WeightType type, const std::byte* source, size_t num_elements, float* out);

}  // namespace ikv
