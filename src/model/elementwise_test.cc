#include "model/elementwise.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <random>
#include <vector>

namespace ikv {
namespace {

// Runs `check` once for every instruction set that this machine has.
template <typename Check>
void for_each_target(const Check& check) {
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    hwy::SetSupportedTargetsForTest(targets & -targets);
    SCOPED_TRACE(hwy::TargetName(targets & -targets));
    check();
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST(ElementwiseTest, GatesEqualTheDefinitionOnEveryTargetAndAtOddSizes) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0f, 5.0f);
  std::vector<float> gates = {0.0f, -0.0f, 1e-20f, -1e-20f, 30.0f, -30.0f, 200.0f, -200.0f, 1e4f};
  while (gates.size() < 131) gates.push_back(normal(random));
  std::vector<float> up(gates.size());
  for (float& value : up) value = normal(random);
  for_each_target([&] {
    for (const auto activation : {GateActivation::kSilu, GateActivation::kGeluTanh}) {
      for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{16}, size_t{131}}) {
        std::vector<float> actual = gates;
        gate_values(activation, actual.data() + 131 - size, up.data() + 131 - size, size);
        for (size_t i = 131 - size; i < 131; ++i) {
          const double expected = gate_value_reference(activation, gates[i], up[i]);
          const double scale = std::abs(static_cast<double>(gates[i]) * up[i]);
          ASSERT_NEAR(actual[i], expected, 2e-6 * scale + 1e-30) << gates[i];
        }
        for (size_t i = 0; i < 131 - size; ++i) ASSERT_EQ(actual[i], gates[i]);
      }
    }
  });
}

TEST(ElementwiseTest, AGatesValueDoesNotDependOnItsPlace) {
  for_each_target([&] {
    for (const auto activation : {GateActivation::kSilu, GateActivation::kGeluTanh}) {
      std::vector<float> alone = {1.2345f};
      const std::vector<float> up(37, 0.777f);
      gate_values(activation, alone.data(), up.data(), 1);
      std::vector<float> many(37, 1.2345f);
      gate_values(activation, many.data(), up.data(), many.size());
      for (const float value : many) ASSERT_EQ(value, alone[0]);
    }
  });
}

TEST(ElementwiseTest, NanAndInfinityPassWithoutHarmToNeighbours) {
  std::vector<float> gates = {1.0f, NAN, INFINITY, -INFINITY, 1.0f};
  const std::vector<float> up(5, 1.0f);
  gate_values(GateActivation::kSilu, gates.data(), up.data(), 5);
  EXPECT_EQ(gates[0], gates[4]);
  EXPECT_EQ(gates[2], INFINITY);
}

}  // namespace
}  // namespace ikv
