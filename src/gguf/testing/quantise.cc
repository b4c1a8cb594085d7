#include "gguf/testing/quantise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "base/check.h"
#include "gguf/testing/tiny_model.h"

namespace ikv::testing {
namespace {

constexpr size_t kBlock = 32;

// Where a block's half-precision scales stand, and values that give weights of about 0.06.
struct Scale {
  size_t offset;
  float value;
};

std::vector<Scale> scales_of(WeightType type) {
  switch (type) {
    case WeightType::kQ8_0:
      return {{0, 0.0008f}};
    case WeightType::kQ4_0:
      return {{0, 0.0135f}};
    case WeightType::kQ4_1:
      return {{0, 0.0135f}, {2, -0.1f}};
    case WeightType::kQ5_0:
      return {{0, 0.0068f}};
    case WeightType::kQ5_1:
      return {{0, 0.0068f}, {2, -0.1f}};
    case WeightType::kQ2_K:
      return {{80, 0.006f}, {82, 0.009f}};
    case WeightType::kQ3_K:
      return {{108, 0.0015f}};
    case WeightType::kQ4_K:
      return {{0, 0.0003f}, {2, 0.00225f}};
    case WeightType::kQ5_K:
      return {{0, 0.00015f}, {2, 0.00225f}};
    case WeightType::kQ6_K:
      return {{208, 0.00005f}};
    default:
      return {};
  }
}

void put_half(std::byte* at, float value) {
  const uint16_t half = float_to_half(value);
  std::memcpy(at, &half, sizeof(half));
}

// The scale as it is stored; rounding to it makes the codes fit what a reader will compute.
float stored(float value) {
  const uint16_t half = float_to_half(value);
  const float magnitude =
      (half & 0x7C00) == 0
          ? std::ldexp(static_cast<float>(half & 0x3FF), -24)
          : std::ldexp(static_cast<float>(1024 + (half & 0x3FF)), (half >> 10 & 31) - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

int code(float value, float scale, int low, int high) {
  const float q = scale == 0.0f ? 0.0f : std::round(value / scale);
  return static_cast<int>(std::clamp(q, static_cast<float>(low), static_cast<float>(high)));
}

void put_nibbles(std::byte* at, const int* codes) {
  for (size_t i = 0; i < kBlock / 2; ++i) {
    at[i] = static_cast<std::byte>(codes[i] | codes[i + kBlock / 2] << 4);
  }
}

void block_q8_0(const float* in, std::byte* out) {
  const float largest = std::abs(*std::max_element(
      in, in + kBlock, [](float a, float b) { return std::abs(a) < std::abs(b); }));
  const float scale = largest / 127.0f;
  put_half(out, scale);
  for (size_t i = 0; i < kBlock; ++i) {
    out[2 + i] = static_cast<std::byte>(code(in[i], stored(scale), -127, 127));
  }
}

void block_q4_0(const float* in, std::byte* out) {
  // The largest magnitude becomes -8, the end that reaches further.
  const float largest = *std::max_element(
      in, in + kBlock, [](float a, float b) { return std::abs(a) < std::abs(b); });
  const float scale = largest / -8.0f;
  put_half(out, scale);
  int codes[kBlock];
  for (size_t i = 0; i < kBlock; ++i) codes[i] = code(in[i], stored(scale), -8, 7) + 8;
  put_nibbles(out + 2, codes);
}

void block_q4_1(const float* in, std::byte* out) {
  const auto [low, high] = std::minmax_element(in, in + kBlock);
  const float scale = (*high - *low) / 15.0f;
  put_half(out, scale);
  put_half(out + 2, *low);
  int codes[kBlock];
  for (size_t i = 0; i < kBlock; ++i) codes[i] = code(in[i] - stored(*low), stored(scale), 0, 15);
  put_nibbles(out + 4, codes);
}

uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

}  // namespace

uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const float magnitude = std::abs(value);
  if (std::isnan(value)) return sign | 0x7E00;
  if (magnitude >= 65520.0f) return sign | 0x7C00;
  // Below 2^-14 the step is 2^-24 throughout; nearbyint rounds ties to even.
  if (magnitude < 0x1p-14f) {
    return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  }
  const uint32_t rebased = std::bit_cast<uint32_t>(magnitude) - (112u << 23);
  return sign | static_cast<uint16_t>((rebased + 0xFFF + (rebased >> 13 & 1)) >> 13);
}

std::vector<std::byte> quantise(WeightType type, std::span<const float> values) {
  const WeightTypeInfo& info = weight_type_info(type);
  IKV_CHECK(values.size() % info.block_elements == 0);
  std::vector<std::byte> bytes(values.size() / info.block_elements * info.block_bytes);
  std::byte* out = bytes.data();
  for (size_t i = 0; i < values.size(); i += info.block_elements, out += info.block_bytes) {
    const float* in = values.data() + i;
    const uint16_t bf16 = float_to_bf16(*in);
    switch (type) {
      case WeightType::kF32:
        std::memcpy(out, in, sizeof(float));
        break;
      case WeightType::kF16:
        put_half(out, *in);
        break;
      case WeightType::kBF16:
        std::memcpy(out, &bf16, sizeof(bf16));
        break;
      case WeightType::kQ8_0:
        block_q8_0(in, out);
        break;
      case WeightType::kQ4_0:
        block_q4_0(in, out);
        break;
      case WeightType::kQ4_1:
        block_q4_1(in, out);
        break;
      default:
        IKV_CHECK(!"a format that tests cannot write from floats");
    }
  }
  return bytes;
}

std::vector<std::byte> random_weights(WeightType type, uint64_t num_elements, uint32_t seed) {
  const WeightTypeInfo& info = weight_type_info(type);
  std::mt19937 random(seed);
  if (info.block_elements == 1) {
    std::normal_distribution<float> normal(0.0f, 0.06f);
    std::vector<float> values(num_elements);
    for (float& value : values) value = normal(random);
    return quantise(type, values);
  }
  // Every code may occur; only the scales must be sensible.
  std::vector<std::byte> bytes(num_elements / info.block_elements * info.block_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (size_t begin = 0; begin < bytes.size(); begin += info.block_bytes) {
    for (const Scale& scale : scales_of(type)) {
      put_half(bytes.data() + begin + scale.offset, scale.value);
    }
  }
  return bytes;
}

}  // namespace ikv::testing
