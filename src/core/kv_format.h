// Number formats of cached keys and values, and a page's size in each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ikv {

/// f32 is the reference; int8 has one scale per token and KV head; int4 has K's scale and offset
/// per channel within a page and V's per token in groups of 32 channels.
enum class KvFormat : uint8_t { kF32, kF16, kBF16, kInt8, kInt4 };

/// "f32", "f16", "bf16", "int8", "int4".
std::string_view kv_format_name(KvFormat format);

/// Accepts the names above and llama.cpp's spellings (q8_0 = int8, q4_0 and q4_1 = int4).
std::optional<KvFormat> parse_kv_format(std::string_view name);

/// K's and V's formats of one page; they may differ.
struct KvFormats {
  KvFormat k = KvFormat::kF16;
  KvFormat v = KvFormat::kF16;
  friend bool operator==(const KvFormats&, const KvFormats&) = default;
};

}  // namespace ikv
