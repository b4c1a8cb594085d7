// Packed products against double precision, each other and themselves in other batches.
#include "ops/matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/cpu_isa.h"
#include "gguf/testing/tiny_model.h"
#include "quant/dequantise.h"

namespace ikv {
namespace {

std::vector<CpuIsa> isas() {
  std::vector<CpuIsa> out;
  for (const CpuIsa isa : all_cpu_isas()) {
    if (isa <= detected_cpu_isa()) out.push_back(isa);
  }
  return out;
}

class ForcedIsa {
 public:
  explicit ForcedIsa(CpuIsa isa) { force_cpu_isa(isa); }
  ~ForcedIsa() { force_cpu_isa(std::nullopt); }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;
};

struct Weights {
  Weights(WeightType type_, size_t num_outputs_, size_t num_inputs_, uint32_t seed = 1)
      : type(type_), num_outputs(num_outputs_), num_inputs(num_inputs_) {
    bytes = testing::random_weights(type, num_outputs * num_inputs, seed);
    floats.resize(num_outputs * num_inputs);
    dequantise(type, bytes.data(), floats.size(), floats.data());
    packed = PackedMatrix::pack(type, bytes.data(), num_outputs, num_inputs).value();
  }
  WeightType type;
  size_t num_outputs, num_inputs;
  std::vector<std::byte> bytes;
  std::vector<float> floats;
  PackedMatrix packed;
};

std::vector<float> random_rows(size_t num_rows, size_t num_inputs, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(num_rows * num_inputs);
  for (size_t i = 0; i < x.size(); ++i) {
    // Like a model's: a few channels are far larger than the others.
    x[i] = normal(random) * (i % 61 == 7 ? 40.0f : 1.0f);
  }
  return x;
}

std::vector<float> multiply_one(const PackedMatrix& matrix, const std::vector<float>& x,
                                int num_threads = 2) {
  ThreadPool threads(num_threads);
  const size_t num_rows = x.size() / matrix.num_inputs();
  std::vector<float> out(num_rows * matrix.num_outputs() + 1, -7.0f);
  AlignedBuffer scratch =
      AlignedBuffer::allocate(matmul_scratch_bytes(matrix.num_inputs(), num_rows) + 64).value();
  const PackedMatrix* const matrices[] = {&matrix};
  float* const outs[] = {out.data()};
  multiply(matrices, x.data(), num_rows, outs, scratch.data(), threads);
  EXPECT_EQ(out.back(), -7.0f) << "written past the end";
  out.pop_back();
  return out;
}

// Compares bits, so that NaN equals NaN.
bool same_bits(const float* a, const float* b, size_t size) {
  return std::memcmp(a, b, size * sizeof(float)) == 0;
}

std::string type_name(const ::testing::TestParamInfo<WeightType>& test) {
  return std::string(weight_type_info(test.param).name);
}

std::vector<WeightType> all_types() {
  std::vector<WeightType> types;
  for (const WeightTypeInfo& info : weight_types()) types.push_back(info.type);
  return types;
}

class MatmulOfType : public ::testing::TestWithParam<WeightType> {};

// The error that rounding a row to 16 bits and summing in float can make.
double error_bound(const Weights& w, const float* x, size_t output) {
  double largest_x = 0.0;
  double largest_w = 0.0;
  double sum_w = 0.0;
  double products = 0.0;
  const float* row = w.floats.data() + output * w.num_inputs;
  for (size_t i = 0; i < w.num_inputs; ++i)
    largest_w = std::max<double>(largest_w, std::abs(row[i]));
  for (size_t i = 0; i < w.num_inputs; ++i) {
    largest_x = std::max<double>(largest_x, std::abs(x[i]));
    sum_w += std::abs(row[i]);
    products += (std::abs(row[i]) + largest_w) * std::abs(x[i]);
  }
  const bool rounded = weight_type_info(w.type).block_elements > 1;
  return (rounded ? 0.51 * sum_w * largest_x / 32639.0 : 0.0) + 1e-6 * products;
}

void expect_near_double(const Weights& w, const std::vector<float>& x,
                        const std::vector<float>& actual) {
  const size_t num_rows = x.size() / w.num_inputs;
  for (size_t r = 0; r < num_rows; ++r) {
    const float* row = x.data() + r * w.num_inputs;
    for (size_t o = 0; o < w.num_outputs; ++o) {
      double expected = 0.0;
      for (size_t i = 0; i < w.num_inputs; ++i) {
        expected += static_cast<double>(w.floats[o * w.num_inputs + i]) * row[i];
      }
      ASSERT_NEAR(actual[r * w.num_outputs + o], expected, error_bound(w, row, o))
          << "row " << r << " of " << num_rows << ", output " << o << " of " << w.num_outputs
          << ", inputs " << w.num_inputs << ", " << cpu_isa_name(cpu_isa());
    }
  }
}

TEST_P(MatmulOfType, EqualsDoublePrecisionOnEveryInstructionSetAndTheSetsEqualEachOther) {
  struct Shape {
    size_t num_outputs, num_inputs, num_rows;
  };
  const size_t block = weight_type_info(GetParam()).block_elements;
  std::vector<Shape> shapes = {{1, 256, 1},  {31, 512, 3},  {33, 256, 7},
                               {64, 768, 1}, {47, 2304, 2}, {32, 1280, 13}};
  if (block <= 32) shapes.insert(shapes.end(), {{17, 32, 5}, {35, 96, 1}, {40, 608, 6}});
  if (block == 1) shapes.insert(shapes.end(), {{3, 1, 1}, {19, 37, 9}, {33, 7, 2}});
  for (const Shape& shape : shapes) {
    const Weights w(GetParam(), shape.num_outputs, shape.num_inputs);
    const auto x = random_rows(shape.num_rows, shape.num_inputs, 5);
    std::vector<float> first;
    for (const CpuIsa isa : isas()) {
      const ForcedIsa forced(isa);
      const auto y = multiply_one(w.packed, x);
      expect_near_double(w, x, y);
      if (first.empty()) first = y;
      EXPECT_TRUE(same_bits(y.data(), first.data(), y.size()))
          << cpu_isa_name(isa) << " differs from scalar: " << shape.num_outputs << " x "
          << shape.num_inputs << ", " << shape.num_rows << " rows";
    }
  }
}

TEST_P(MatmulOfType, ARowIsBitIdenticalAloneAndInEveryBatchAndForAnyNumberOfThreads) {
  const Weights w(GetParam(), 70, 1024);
  constexpr size_t kMost = 260;
  const auto x = random_rows(kMost, w.num_inputs, 6);
  for (const CpuIsa isa : isas()) {
    const ForcedIsa forced(isa);
    std::vector<size_t> batches = {2, 3, 4, 5, 6, 7, 8, 11, 12, 13};
    if (isa != CpuIsa::kScalar) batches.insert(batches.end(), {119, 121, kMost});
    std::vector<float> alone;
    for (size_t r = 0; r < batches.back(); ++r) {
      const auto begin = x.begin() + static_cast<ptrdiff_t>(r * w.num_inputs);
      const auto y = multiply_one(
          w.packed, std::vector<float>(begin, begin + static_cast<ptrdiff_t>(w.num_inputs)), 1);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (const size_t batch : batches) {
      const std::vector<float> rows(x.begin(),
                                    x.begin() + static_cast<ptrdiff_t>(batch * w.num_inputs));
      const auto y = multiply_one(w.packed, rows, static_cast<int>(batch % 4) + 1);
      EXPECT_TRUE(same_bits(y.data(), alone.data(), y.size()))
          << batch << " rows, " << cpu_isa_name(isa);
    }
  }
}

TEST_P(MatmulOfType, EveryWeightKeepsTheFilesValue) {
  const Weights w(GetParam(), 45, 512);
  std::vector<float> row(w.num_inputs);
  for (size_t o = 0; o < w.num_outputs; ++o) {
    w.packed.unpack_row(o, row.data());
    EXPECT_TRUE(same_bits(row.data(), w.floats.data() + o * w.num_inputs, w.num_inputs)) << o;
  }
}

TEST_P(MatmulOfType, TakesAboutTheFilesMemory) {
  const Weights w(GetParam(), 64, 1024);
  const auto file_bytes = static_cast<double>(w.bytes.size());
  EXPECT_LE(static_cast<double>(w.packed.size_bytes()), 1.2 * file_bytes);
  EXPECT_GE(static_cast<double>(w.packed.size_bytes()), file_bytes);
}

TEST_P(MatmulOfType, ARowWithAnInfinityOrNanSpoilsNoOtherRow) {
  const Weights w(GetParam(), 40, 512);
  constexpr size_t kRows = 9;
  const auto good = random_rows(kRows, w.num_inputs, 8);
  for (const CpuIsa isa : isas()) {
    const ForcedIsa forced(isa);
    const auto expected = multiply_one(w.packed, good);
    for (const float bad : {INFINITY, -INFINITY, NAN, -NAN}) {
      auto x = good;
      x[2 * w.num_inputs + 100] = bad;
      x[7 * w.num_inputs + 511] = bad;
      const auto y = multiply_one(w.packed, x);
      for (size_t r = 0; r < kRows; ++r) {
        const float* row = y.data() + r * w.num_outputs;
        if (r == 2 || r == 7) {
          // Float weights: an infinity times a weight stays one.
          EXPECT_FALSE(std::isfinite(row[0]) || std::isfinite(row[39])) << r;
        } else {
          EXPECT_TRUE(same_bits(row, expected.data() + r * w.num_outputs, w.num_outputs)) << r;
        }
      }
    }
  }
}

TEST_P(MatmulOfType, ZerosGiveZeroAndTheLargestAndSmallestFloatsKeepTheirScale) {
  const Weights w(GetParam(), 33, 256);
  const auto base = random_rows(1, w.num_inputs, 9);
  for (const CpuIsa isa : isas()) {
    const ForcedIsa forced(isa);
    EXPECT_THAT(multiply_one(w.packed, std::vector<float>(w.num_inputs)),
                ::testing::Each(::testing::Eq(0.0f)));
    for (const float factor : {0x1p+110f, 0x1p-80f}) {
      auto x = base;
      for (float& value : x) value *= factor;
      const auto y = multiply_one(w.packed, x);
      expect_near_double(w, x, y);
    }
    auto tiny = base;
    for (float& value : tiny) value *= 0x1p-135f;
    for (const float y : multiply_one(w.packed, tiny)) EXPECT_LT(std::abs(y), 1e-28f);
  }
}

TEST_P(MatmulOfType, AnyBytesAreWeights) {
  std::mt19937 random(3);
  const WeightTypeInfo& info = weight_type_info(GetParam());
  constexpr size_t kOutputs = 37;
  constexpr size_t kInputs = 512;
  std::vector<std::byte> bytes(kOutputs * kInputs / info.block_elements * info.block_bytes + 1);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  // From an odd address: a tensor's data need not be aligned in memory.
  const auto packed = PackedMatrix::pack(GetParam(), bytes.data() + 1, kOutputs, kInputs).value();
  const auto x = random_rows(3, kInputs, 10);
  std::vector<float> row(kInputs);
  std::vector<float> first;
  for (const CpuIsa isa : isas()) {
    const ForcedIsa forced(isa);
    const auto y = multiply_one(packed, x);
    if (first.empty()) first = y;
    for (size_t i = 0; i < y.size(); ++i) {
      EXPECT_EQ(std::isnan(y[i]), std::isnan(first[i]));
      if (!std::isnan(y[i])) {
        EXPECT_EQ(y[i], first[i]);
      }
    }
  }
  packed.unpack_row(kOutputs - 1, row.data());
}

INSTANTIATE_TEST_SUITE_P(All, MatmulOfType, ::testing::ValuesIn(all_types()), type_name);

TEST(MatmulTest, MatricesOfSeveralTypesShareOneInput) {
  const Weights a(WeightType::kQ4_1, 100, 512, 1);
  const Weights b(WeightType::kF16, 33, 512, 2);
  const Weights c(WeightType::kQ6_K, 7, 512, 3);
  const PackedMatrix* const matrices[] = {&a.packed, &b.packed, &c.packed};
  ThreadPool threads(2);
  for (const size_t num_rows : {1, 5, 40}) {
    const auto x = random_rows(num_rows, 512, 11);
    std::vector<std::vector<float>> outs;
    for (const PackedMatrix* m : matrices) outs.emplace_back(num_rows * m->num_outputs());
    float* const pointers[] = {outs[0].data(), outs[1].data(), outs[2].data()};
    AlignedBuffer scratch = AlignedBuffer::allocate(matmul_scratch_bytes(512, num_rows)).value();
    multiply(matrices, x.data(), num_rows, pointers, scratch.data(), threads);
    for (size_t i = 0; i < outs.size(); ++i) EXPECT_EQ(outs[i], multiply_one(*matrices[i], x)) << i;
  }
}

TEST(MatmulTest, ManyMatricesMayShareOneBuffer) {
  const Weights a(WeightType::kQ4_0, 33, 96, 1);
  const Weights b(WeightType::kQ8_0, 5, 96, 2);
  const size_t second = (a.packed.size_bytes() + 63) / 64 * 64;
  auto memory = std::make_shared<AlignedBuffer>(
      AlignedBuffer::allocate(second + b.packed.size_bytes()).value());
  const auto pa = PackedMatrix::pack(a.type, a.bytes.data(), 33, 96, memory, 0);
  const auto pb = PackedMatrix::pack(b.type, b.bytes.data(), 5, 96, memory, second);
  memory.reset();
  const auto x = random_rows(4, 96, 12);
  EXPECT_EQ(multiply_one(pa, x), multiply_one(a.packed, x));
  EXPECT_EQ(multiply_one(pb, x), multiply_one(b.packed, x));
}

TEST(MatmulTest, SizesThatOverflowNeedNoMemory) {
  EXPECT_EQ(PackedMatrix::packed_bytes(WeightType::kF32, size_t{1} << 40, size_t{1} << 30), 0u);
  EXPECT_EQ(PackedMatrix::packed_bytes(WeightType::kQ4_1, 32, 64), 1280u);
}

}  // namespace
}  // namespace ikv
