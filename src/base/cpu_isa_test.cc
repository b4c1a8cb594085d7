#include "base/cpu_isa.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cstdlib>
#include <string>

#include "base/log.h"

namespace ikv {
namespace {

// IKV_ISA is read once a process, so each value gets one of its own.
void exit_with_isa(const char* value) {
  setenv("IKV_ISA", value, 1);
  std::exit(cpu_isa() == CpuIsa::kScalar && cpu_isa() == cpu_isa() ? 10 : 11);
}

TEST(CpuIsaTest, TheEnvironmentLowersIt) {
  EXPECT_EXIT(exit_with_isa("scalar"), ::testing::ExitedWithCode(10), "^$");
}

TEST(CpuIsaTest, AnUnknownNameIsIgnoredWithAWarningThatNamesTheChoices) {
  const int code = detected_cpu_isa() == CpuIsa::kScalar ? 10 : 11;
  EXPECT_EXIT(exit_with_isa("sse9"), ::testing::ExitedWithCode(code), "IKV_ISA='sse9'.*scalar");
}

TEST(CpuIsaTest, ForcingAndHighwaysLimitAreObeyedAndEnd) {
  const CpuIsa before = cpu_isa();
  force_cpu_isa(CpuIsa::kScalar);
  EXPECT_EQ(cpu_isa(), CpuIsa::kScalar);
  force_cpu_isa(std::nullopt);
  EXPECT_EQ(cpu_isa(), before);
  hwy::SetSupportedTargetsForTest(HWY_STATIC_TARGET);
  EXPECT_LE(cpu_isa(), before);
#if defined(__x86_64__) && !defined(__AVX2__)
  EXPECT_EQ(cpu_isa(), CpuIsa::kScalar);
#endif
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_EQ(cpu_isa(), before);
}

}  // namespace
}  // namespace ikv
