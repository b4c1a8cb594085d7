// The weight formats of GGUF that this engine reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ikv {

/// Numbers as in GGUF files (ggml's tensor types).
enum class WeightType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

/// A format's name and block: `block_bytes` hold `block_elements` consecutive elements of a row.
struct WeightTypeInfo {
  WeightType type;
  std::string_view name;
  uint32_t block_elements;
  uint32_t block_bytes;
};

/// Every format, in the order in which messages name them.
std::span<const WeightTypeInfo> weight_types();

/// Null if the number is no format that is read here.
const WeightTypeInfo* find_weight_type(uint32_t number);

/// The same for a known one.
const WeightTypeInfo& weight_type_info(WeightType type);

/// "F32, F16, ..." for messages.
std::string supported_weight_types();

/// ggml's name of any type number, supported or not ("IQ2_XXS"), or "number N".
std::string ggml_type_name(uint32_t number);

}  // namespace ikv
