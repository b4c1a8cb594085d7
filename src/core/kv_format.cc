#include "core/kv_format.h"

namespace ikv {

std::string_view kv_format_name(KvFormat format) {
  switch (format) {
    case KvFormat::kF32:
      return "f32";
    case KvFormat::kF16:
      return "f16";
    case KvFormat::kBF16:
      return "bf16";
    case KvFormat::kInt8:
      return "int8";
    case KvFormat::kInt4:
      return "int4";
  }
  return "?";
}

std::optional<KvFormat> parse_kv_format(std::string_view name) {
  if (name == "f32") return KvFormat::kF32;
  if (name == "f16") return KvFormat::kF16;
  if (name == "bf16") return KvFormat::kBF16;
  if (name == "int8" || name == "q8_0") return KvFormat::kInt8;
  if (name == "int4" || name == "q4_0" || name == "q4_1") return KvFormat::kInt4;
  return std::nullopt;
}

}  // namespace ikv
