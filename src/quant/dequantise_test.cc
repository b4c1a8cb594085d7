// Every weight format against the values that the format's own Python package decodes.
#include "quant/dequantise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gguf/testing/quantise.h"

namespace ikv {
namespace {

struct Golden {
  uint32_t num_blocks = 0;
  uint32_t block_bytes = 0;
  uint32_t block_elements = 0;
  std::vector<std::byte> blocks;
  std::vector<float> values;
};

// tests/golden/make_dequant_goldens.py documents the layout.
Golden read_golden(std::string_view type_name) {
  const std::string path =
      std::string(IKV_SOURCE_DIR) + "/tests/golden/dequant_" + std::string(type_name) + ".bin";
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  Golden golden;
  constexpr size_t kHeaderBytes = 12;
  if (bytes.size() < kHeaderBytes) {
    ADD_FAILURE() << "cannot read " << path;
    return golden;
  }
  std::memcpy(&golden.num_blocks, bytes.data(), 4);
  std::memcpy(&golden.block_bytes, bytes.data() + 4, 4);
  std::memcpy(&golden.block_elements, bytes.data() + 8, 4);
  golden.blocks.resize(size_t{golden.num_blocks} * golden.block_bytes);
  golden.values.resize(size_t{golden.num_blocks} * golden.block_elements);
  const size_t value_bytes = golden.values.size() * sizeof(float);
  if (bytes.size() != kHeaderBytes + golden.blocks.size() + value_bytes) {
    ADD_FAILURE() << path << " has a wrong size";
    return {};
  }
  std::memcpy(golden.blocks.data(), bytes.data() + kHeaderBytes, golden.blocks.size());
  std::memcpy(golden.values.data(), bytes.data() + kHeaderBytes + golden.blocks.size(),
              value_bytes);
  return golden;
}

class Dequantise : public ::testing::TestWithParam<WeightTypeInfo> {};

TEST_P(Dequantise, IsBitIdenticalToTheFormatsReference) {
  const WeightTypeInfo& info = GetParam();
  const Golden golden = read_golden(info.name);
  ASSERT_EQ(golden.block_bytes, info.block_bytes);
  ASSERT_EQ(golden.block_elements, info.block_elements);
  ASSERT_GE(golden.values.size(), 512u);
  std::vector<float> values(golden.values.size());
  dequantise(info.type, golden.blocks.data(), values.size(), values.data());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), std::bit_cast<uint32_t>(golden.values[i]))
        << "element " << i << ": " << values[i] << ", not " << golden.values[i];
  }
}

TEST_P(Dequantise, ReadsUnalignedBytesAndWritesNothingBeyond) {
  const WeightTypeInfo& info = GetParam();
  const Golden golden = read_golden(info.name);
  std::vector<std::byte> shifted(golden.blocks.size() + 1);
  std::memcpy(shifted.data() + 1, golden.blocks.data(), golden.blocks.size());
  const size_t num_elements = info.block_elements;
  std::vector<float> values(num_elements + 1, 123.0f);
  dequantise(info.type, shifted.data() + 1, num_elements, values.data());
  EXPECT_EQ(std::memcmp(values.data(), golden.values.data(), num_elements * sizeof(float)), 0);
  EXPECT_EQ(values.back(), 123.0f);
}

INSTANTIATE_TEST_SUITE_P(All, Dequantise, ::testing::ValuesIn(weight_types()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(HalfToFloatTest, AllPatternsFollowTheDefinition) {
  for (uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const float value = half_to_float(static_cast<uint16_t>(pattern));
    const int exponent = static_cast<int>(pattern >> 10 & 31);
    const int mantissa = static_cast<int>(pattern & 0x3FF);
    EXPECT_EQ(std::signbit(value), pattern >= 0x8000);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), mantissa != 0) << pattern;
      EXPECT_EQ(std::isinf(value), mantissa == 0) << pattern;
      continue;
    }
    const double expected =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    EXPECT_EQ(std::abs(static_cast<double>(value)), expected) << pattern;
  }
}

// What tests write with must be the inverse of what the engine reads with.
TEST(QuantiseTest, ValuesComeBackWithinHalfAStepOfTheirBlock) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  constexpr size_t kBlock = 32;
  std::vector<float> values(64 * kBlock);
  for (float& value : values) value = normal(random);
  std::fill(values.begin(), values.begin() + kBlock, 0.0f);
  std::fill(values.begin() + kBlock, values.begin() + 2 * kBlock, -0.75f);
  // Half a step relative to the block's largest magnitude, and the rounding of its scales.
  const std::pair<WeightType, float> formats[] = {{WeightType::kF32, 0.0f},
                                                  {WeightType::kF16, 0x1p-11f},
                                                  {WeightType::kBF16, 0x1p-8f},
                                                  {WeightType::kQ8_0, 0.5f / 127 + 1e-3f},
                                                  {WeightType::kQ4_0, 1.0f / 8 + 1e-3f},
                                                  {WeightType::kQ4_1, 1.0f / 15 + 2e-3f}};
  for (const auto& [type, tolerance] : formats) {
    const std::vector<std::byte> bytes = testing::quantise(type, values);
    std::vector<float> back(values.size());
    dequantise(type, bytes.data(), back.size(), back.data());
    for (size_t i = 0; i < values.size(); ++i) {
      const float* block = values.data() + i / kBlock * kBlock;
      float largest = 0.0f;
      for (size_t j = 0; j < kBlock; ++j) largest = std::max(largest, std::abs(block[j]));
      ASSERT_LE(std::abs(back[i] - values[i]), largest * tolerance)
          << weight_type_info(type).name << " element " << i;
    }
  }
}

TEST(QuantiseTest, EveryHalfComesBackAndBetweenTwoTheNearestIsTaken) {
  for (uint32_t pattern = 0; pattern < 0x7C00; ++pattern) {
    const auto half = static_cast<uint16_t>(pattern);
    const float value = half_to_float(half);
    ASSERT_EQ(testing::float_to_half(value), half);
    ASSERT_EQ(testing::float_to_half(-value), half | 0x8000);
    if (pattern == 0x7BFF) continue;
    const float middle = (value + half_to_float(static_cast<uint16_t>(half + 1))) / 2;
    ASSERT_EQ(testing::float_to_half(std::nextafter(middle, 0.0f)), half);
    ASSERT_EQ(testing::float_to_half(std::nextafter(middle, 1e9f)), half + 1);
    ASSERT_EQ(testing::float_to_half(middle) % 2, 0);
  }
  EXPECT_EQ(testing::float_to_half(65519.0f), 0x7BFF);
  EXPECT_EQ(testing::float_to_half(65520.0f), 0x7C00);
  EXPECT_TRUE(std::isnan(half_to_float(testing::float_to_half(NAN))));
}

}  // namespace
}  // namespace ikv
