#include "gguf/types.h"

#include <iterator>

#include "base/check.h"

namespace ikv {
namespace {

constexpr WeightTypeInfo kTypes[] = {
    {WeightType::kF32, "F32", 1, 4},       {WeightType::kF16, "F16", 1, 2},
    {WeightType::kBF16, "BF16", 1, 2},     {WeightType::kQ8_0, "Q8_0", 32, 34},
    {WeightType::kQ4_0, "Q4_0", 32, 18},   {WeightType::kQ4_1, "Q4_1", 32, 20},
    {WeightType::kQ5_0, "Q5_0", 32, 22},   {WeightType::kQ5_1, "Q5_1", 32, 24},
    {WeightType::kQ2_K, "Q2_K", 256, 84},  {WeightType::kQ3_K, "Q3_K", 256, 110},
    {WeightType::kQ4_K, "Q4_K", 256, 144}, {WeightType::kQ5_K, "Q5_K", 256, 176},
    {WeightType::kQ6_K, "Q6_K", 256, 210},
};

// By number; types that were withdrawn from the format keep their place.
constexpr std::string_view kAllNames[] = {
    "F32",   "F16",        "Q4_0",       "Q4_1",       "Q4_2",     "Q4_3",     "Q5_0",
    "Q5_1",  "Q8_0",       "Q8_1",       "Q2_K",       "Q3_K",     "Q4_K",     "Q5_K",
    "Q6_K",  "Q8_K",       "IQ2_XXS",    "IQ2_XS",     "IQ3_XXS",  "IQ1_S",    "IQ4_NL",
    "IQ3_S", "IQ2_S",      "IQ4_XS",     "I8",         "I16",      "I32",      "I64",
    "F64",   "IQ1_M",      "BF16",       "Q4_0_4_4",   "Q4_0_4_8", "Q4_0_8_8", "TQ1_0",
    "TQ2_0", "IQ4_NL_4_4", "IQ4_NL_4_8", "IQ4_NL_8_8", "MXFP4"};

}  // namespace

std::span<const WeightTypeInfo> weight_types() {
  return kTypes;
}

const WeightTypeInfo* find_weight_type(uint32_t number) {
  for (const WeightTypeInfo& info : kTypes) {
    if (static_cast<uint32_t>(info.type) == number) return &info;
  }
  return nullptr;
}

const WeightTypeInfo& weight_type_info(WeightType type) {
  const WeightTypeInfo* info = find_weight_type(static_cast<uint32_t>(type));
  IKV_CHECK(info != nullptr);
  return *info;
}

std::string supported_weight_types() {
  std::string names;
  for (const WeightTypeInfo& info : kTypes) {
    if (!names.empty()) names += ", ";
    names += info.name;
  }
  return names;
}

std::string ggml_type_name(uint32_t number) {
  if (number < std::size(kAllNames)) return std::string(kAllNames[number]);
  return "number " + std::to_string(number);
}

}  // namespace ikv
