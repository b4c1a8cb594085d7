#include "quant/dequantise.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace ikv {
namespace {

using Bytes = const uint8_t*;

float half_at(Bytes p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return half_to_float(half);
}

uint32_t word_at(Bytes p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

void element_f32(Bytes p, float* out) {
  std::memcpy(out, p, sizeof(float));
}

void element_f16(Bytes p, float* out) {
  *out = half_at(p);
}

void element_bf16(Bytes p, float* out) {
  *out =
      std::bit_cast<float>(static_cast<uint32_t>(p[0]) << 16 | static_cast<uint32_t>(p[1]) << 24);
}

// Blocks of 32: the low nibbles are elements 0..15, the high ones 16..31.
int nibble(Bytes p, int i) {
  return i < 16 ? p[i] & 15 : p[i - 16] >> 4;
}

// The fifth bit of element i, from a word that has one for each element.
int fifth_bit(uint32_t word, int i) {
  return static_cast<int>(word >> i & 1u) << 4;
}

void block_q8_0(Bytes p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(p[2 + i]));
}

void block_q4_0(Bytes p, float* out) {
  const float d = half_at(p);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(p + 2, i) - 8);
}

void block_q4_1(Bytes p, float* out) {
  const float d = half_at(p);
  const float m = half_at(p + 2);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(p + 4, i)) + m;
}

void block_q5_0(Bytes p, float* out) {
  const float d = half_at(p);
  const uint32_t high = word_at(p + 2);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>((nibble(p + 6, i) | fifth_bit(high, i)) - 16);
  }
}

void block_q5_1(Bytes p, float* out) {
  const float d = half_at(p);
  const float m = half_at(p + 2);
  const uint32_t high = word_at(p + 4);
  for (int i = 0; i < 32; ++i) {
    out[i] = d * static_cast<float>(nibble(p + 8, i) | fifth_bit(high, i)) + m;
  }
}

// The K formats have 256 elements a block. Their two-bit fields stand in four planes of 32 for each
// half of 128.
int two_bits(Bytes p, int i) {
  return p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void block_q2_k(Bytes p, float* out) {
  const float d = half_at(p + 80);
  const float m = half_at(p + 82);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(p[i / 16] & 15);
    const float min = m * static_cast<float>(p[i / 16] >> 4);
    out[i] = scale * static_cast<float>(two_bits(p + 16, i)) - min;
  }
}

void block_q3_k(Bytes p, float* out) {
  const Bytes high = p;
  const Bytes packed = p + 96;
  const float d = half_at(p + 108);
  for (int i = 0; i < 256; ++i) {
    // Sixteen scales of six bits: the low four in bytes 0..7, the high two in bytes 8..11.
    const int s = i / 16;
    const int low4 = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
    const int high2 = packed[8 + s % 4] >> (s / 4 * 2) & 3;
    const float scale = d * static_cast<float>((low4 | high2 << 4) - 32);
    const int third_bit = high[i % 32] >> (i / 32) & 1;
    out[i] = scale * static_cast<float>((two_bits(p + 32, i) | third_bit << 2) - 4);
  }
}

// Scale and minimum of 32 elements of Q4_K and Q5_K; eight of each, of six bits, in twelve bytes.
struct ScaleAndMin {
  float scale;
  float min;
};

ScaleAndMin scale_and_min(Bytes p, int j, float d, float m) {
  const int scale = j < 4 ? p[j] & 63 : (p[j + 4] & 15) | p[j - 4] >> 6 << 4;
  const int min = j < 4 ? p[j + 4] & 63 : p[j + 4] >> 4 | p[j] >> 6 << 4;
  return {d * static_cast<float>(scale), m * static_cast<float>(min)};
}

void block_q4_k(Bytes p, float* out) {
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_and_min(p + 4, j, half_at(p), half_at(p + 2));
    const Bytes q = p + 16 + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      out[j * 32 + i] = scale * static_cast<float>(q[i] >> shift & 15) - min;
    }
  }
}

void block_q5_k(Bytes p, float* out) {
  const Bytes high = p + 16;
  for (int j = 0; j < 8; ++j) {
    const auto [scale, min] = scale_and_min(p + 4, j, half_at(p), half_at(p + 2));
    const Bytes q = p + 48 + j / 2 * 32;
    const int shift = j % 2 * 4;
    for (int i = 0; i < 32; ++i) {
      const int value = (q[i] >> shift & 15) | (high[i] >> j & 1) << 4;
      out[j * 32 + i] = scale * static_cast<float>(value) - min;
    }
  }
}

void block_q6_k(Bytes p, float* out) {
  const float d = half_at(p + 208);
  for (int i = 0; i < 256; ++i) {
    const int j = i % 128;
    const int low = p[i / 128 * 64 + j % 64] >> (j / 64 * 4) & 15;
    const float scale = d * static_cast<float>(static_cast<int8_t>(p[192 + i / 16]));
    out[i] = scale * static_cast<float>((low | two_bits(p + 128, i) << 4) - 32);
  }
}

using BlockFunction = void (*)(Bytes p, float* out);

BlockFunction block_function(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return element_f32;
    case WeightType::kF16:
      return element_f16;
    case WeightType::kBF16:
      return element_bf16;
    case WeightType::kQ8_0:
      return block_q8_0;
    case WeightType::kQ4_0:
      return block_q4_0;
    case WeightType::kQ4_1:
      return block_q4_1;
    case WeightType::kQ5_0:
      return block_q5_0;
    case WeightType::kQ5_1:
      return block_q5_1;
    case WeightType::kQ2_K:
      return block_q2_k;
    case WeightType::kQ3_K:
      return block_q3_k;
    case WeightType::kQ4_K:
      return block_q4_k;
    case WeightType::kQ5_K:
      return block_q5_k;
    case WeightType::kQ6_K:
      return block_q6_k;
  }
  return nullptr;
}

}  // namespace

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = half >> 10 & 31u;
  const uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: a multiple of 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  const uint32_t exponent_bits = exponent == 31 ? 0x7F800000u : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | exponent_bits | mantissa << 13);
}

void dequantise(WeightType type, const std::byte* source, size_t num_elements, float* out) {
  const WeightTypeInfo& info = weight_type_info(type);
  const BlockFunction function = block_function(type);
  IKV_CHECK(function != nullptr && num_elements % info.block_elements == 0);
  Bytes p = reinterpret_cast<Bytes>(source);
  for (size_t i = 0; i < num_elements; i += info.block_elements) {
    function(p, out + i);
    p += info.block_bytes;
  }
}

}  // namespace ikv
