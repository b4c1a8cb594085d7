#include "ops/weight_groups.h"

#include <cstring>

#include "base/check.h"

namespace ikv {
namespace {

using Bytes = const uint8_t*;

uint16_t half_at(Bytes p) {
  uint16_t half;
  std::memcpy(&half, p, sizeof(half));
  return half;
}

// The K formats subtract their minima.
uint16_t negated_half_at(Bytes p) {
  return half_at(p) ^ 0x8000u;
}

// Blocks of 32: the low nibbles are elements 0..15, the high ones 16..31.
void read_nibbles(Bytes p, WeightGroups& out) {
  for (size_t i = 0; i < 16; ++i) {
    out.codes[i] = p[i] & 15;
    out.codes[i + 16] = p[i] >> 4;
  }
}

// One bit an element, the fifth.
void add_fifth_bits(Bytes p, WeightGroups& out) {
  for (size_t i = 0; i < 32; ++i) {
    out.codes[i] = static_cast<uint8_t>(out.codes[i] | (p[i / 8] >> (i % 8) & 1) << 4);
  }
}

// Blocks of 256, the K formats: their two-bit fields stand in four planes of 32 for each half.
int two_bits(Bytes p, size_t i) {
  return p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void read_q2_k(Bytes p, size_t first, WeightGroups& out) {
  for (size_t i = 0; i < 32; ++i) {
    out.codes[i] = static_cast<uint8_t>(two_bits(p + 16, first + i));
  }
  for (size_t g = 0; g < 2; ++g) {
    const int both = p[first / 16 + g];
    out.scales[g] = static_cast<int8_t>(both & 15);
    out.mins[g] = static_cast<int8_t>(both >> 4);
  }
  out.scale = half_at(p + 80);
  out.min = negated_half_at(p + 82);
}

void read_q3_k(Bytes p, size_t first, WeightGroups& out) {
  for (size_t i = 0; i < 32; ++i) {
    const int third_bit = p[i] >> (first / 32) & 1;
    out.codes[i] = static_cast<uint8_t>(two_bits(p + 32, first + i) | third_bit << 2);
  }
  // Sixteen scales of six bits: the low four in bytes 0..7, the high two in bytes 8..11.
  const Bytes packed = p + 96;
  for (size_t g = 0; g < 2; ++g) {
    const size_t s = first / 16 + g;
    const int low4 = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
    const int high2 = packed[8 + s % 4] >> (s / 4 * 2) & 3;
    out.scales[g] = static_cast<int8_t>((low4 | high2 << 4) - 32);
  }
  out.scale = half_at(p + 108);
}

// Q4_K and Q5_K: eight scales and minima of six bits in the twelve bytes behind d and dmin.
void read_scale_and_min(Bytes p, size_t first, WeightGroups& out) {
  const Bytes packed = p + 4;
  const size_t j = first / 32;
  const int scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
  const int min = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | packed[j] >> 6 << 4;
  out.scales[0] = static_cast<int8_t>(scale);
  out.mins[0] = static_cast<int8_t>(min);
  out.scale = half_at(p);
  out.min = negated_half_at(p + 2);
}

void read_nibbles_k(Bytes nibbles, size_t first, WeightGroups& out) {
  const Bytes q = nibbles + first / 64 * 32;
  const size_t shift = first / 32 % 2 * 4;
  for (size_t i = 0; i < 32; ++i) out.codes[i] = q[i] >> shift & 15;
}

void read_q5_k(Bytes p, size_t first, WeightGroups& out) {
  read_nibbles_k(p + 48, first, out);
  for (size_t i = 0; i < 32; ++i) {
    const int fifth_bit = p[16 + i] >> (first / 32) & 1;
    out.codes[i] = static_cast<uint8_t>(out.codes[i] | fifth_bit << 4);
  }
}

void read_q6_k(Bytes p, size_t first, WeightGroups& out) {
  for (size_t i = 0; i < 32; ++i) {
    const size_t e = first + i;
    const int low = p[e / 128 * 64 + e % 64] >> (e % 128 / 64 * 4) & 15;
    out.codes[i] = static_cast<uint8_t>(low | two_bits(p + 128, e) << 4);
  }
  for (size_t g = 0; g < 2; ++g) out.scales[g] = static_cast<int8_t>(p[192 + first / 16 + g]);
  out.scale = half_at(p + 208);
}

void read_block_of_32(WeightType type, Bytes p, WeightGroups& out) {
  out.scale = half_at(p);
  switch (type) {
    case WeightType::kQ8_0:
      for (size_t i = 0; i < 32; ++i) out.codes[i] = p[2 + i] ^ 0x80;  // + 128
      break;
    case WeightType::kQ4_0:
      read_nibbles(p + 2, out);
      break;
    case WeightType::kQ4_1:
      out.min = half_at(p + 2);
      read_nibbles(p + 4, out);
      break;
    case WeightType::kQ5_0:
      read_nibbles(p + 6, out);
      add_fifth_bits(p + 2, out);
      break;
    case WeightType::kQ5_1:
      out.min = half_at(p + 2);
      read_nibbles(p + 8, out);
      add_fifth_bits(p + 4, out);
      break;
    default:
      IKV_CHECK(!"not a quantised weight type");
  }
}

void read_block_of_256(WeightType type, Bytes p, size_t first, WeightGroups& out) {
  switch (type) {
    case WeightType::kQ2_K:
      return read_q2_k(p, first, out);
    case WeightType::kQ3_K:
      return read_q3_k(p, first, out);
    case WeightType::kQ4_K:
      read_scale_and_min(p, first, out);
      return read_nibbles_k(p + 16, first, out);
    case WeightType::kQ5_K:
      read_scale_and_min(p, first, out);
      return read_q5_k(p, first, out);
    case WeightType::kQ6_K:
      return read_q6_k(p, first, out);
    default:
      IKV_CHECK(!"not a quantised weight type");
  }
}

}  // namespace

WeightGroups read_weight_groups(WeightType type, const std::byte* row, size_t chunk) {
  const WeightTypeInfo& info = weight_type_info(type);
  const size_t first = chunk * 32;
  const Bytes block = reinterpret_cast<Bytes>(row) + first / info.block_elements * info.block_bytes;
  WeightGroups out{};
  if (info.block_elements == 32) {
    read_block_of_32(type, block, out);
  } else {
    read_block_of_256(type, block, first % info.block_elements, out);
  }
  return out;
}

}  // namespace ikv
