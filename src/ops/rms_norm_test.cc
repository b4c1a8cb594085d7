#include "ops/rms_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "base/cpu_isa.h"

namespace ikv {
namespace {

constexpr float kEpsilon = 1e-5f;

std::vector<float> random_floats(size_t size, uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> out(size);
  for (float& value : out) value = normal(random);
  return out;
}

std::vector<float> norm(const std::vector<float>& x, const std::vector<float>& weight,
                        int num_threads) {
  ThreadPool threads(num_threads);
  std::vector<float> out(x.size());
  rms_norm(x.data(), weight.data(), x.size() / weight.size(), weight.size(), kEpsilon, out.data(),
           threads);
  return out;
}

TEST(RmsNormTest, EqualsDoublePrecisionWithTheSameBitsOnEveryInstructionSetAndInEveryBatch) {
  for (const size_t width : {1, 2, 15, 16, 17, 64, 100, 576, 4099}) {
    const size_t num_rows = 40000 / width + 3;
    const auto x = random_floats(num_rows * width, 1, 3.0f);
    const auto weight = random_floats(width, 2, 1.0f);
    std::vector<float> first;
    for (const CpuIsa isa : all_cpu_isas()) {
      if (isa > detected_cpu_isa()) break;
      force_cpu_isa(isa);
      const auto all = norm(x, weight, 3);
      if (first.empty()) first = all;
      EXPECT_EQ(all, first) << cpu_isa_name(isa) << ", width " << width;
      const std::vector<float> last(x.end() - static_cast<ptrdiff_t>(width), x.end());
      EXPECT_EQ(norm(last, weight, 1),
                std::vector<float>(all.end() - static_cast<ptrdiff_t>(width), all.end()));
    }
    force_cpu_isa(std::nullopt);
    for (size_t row = 0; row < num_rows; ++row) {
      double squares = 0.0;
      for (size_t i = 0; i < width; ++i) squares += std::pow(x[row * width + i], 2.0);
      const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + kEpsilon);
      for (size_t i = 0; i < width; ++i) {
        const double expected = x[row * width + i] * scale * weight[i];
        ASSERT_NEAR(first[row * width + i], expected, 1e-6 * std::abs(expected) + 1e-12);
      }
    }
  }
}

TEST(RmsNormTest, WorksInPlaceOnZerosAndKeepsNanInItsRow) {
  const std::vector<float> weight(20, 2.0f);
  std::vector<float> x(60, 0.0f);
  x[25] = NAN;
  x[45] = 3.0f;
  const auto expected = norm(x, weight, 1);
  ThreadPool threads(1);
  rms_norm(x.data(), weight.data(), 3, 20, kEpsilon, x.data(), threads);
  EXPECT_EQ(std::vector<float>(x.begin(), x.begin() + 20), std::vector<float>(20, 0.0f));
  EXPECT_TRUE(std::isnan(x[25]));
  EXPECT_EQ(x[45], expected[45]);
  EXPECT_NEAR(x[45], 6.0 / std::sqrt(9.0 / 20.0 + kEpsilon), 1e-5);
}

}  // namespace
}  // namespace ikv
