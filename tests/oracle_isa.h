// Runs the oracle tests on each instruction set that this machine has, not only on the best.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ikv::testing {

/// An instruction set by Highway's name and bit.
struct OracleIsa {
  std::string name;
  int64_t target = 0;
};

/// What this machine can run, best first.
inline std::vector<OracleIsa> supported_isas() {
  std::vector<OracleIsa> isas;
  for (int64_t targets = hwy::SupportedTargets(); targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    isas.push_back({hwy::TargetName(target), target});
  }
  return isas;
}

/// Kernels chosen while it lives are those of one instruction set.
class ForcedIsa {
 public:
  explicit ForcedIsa(const OracleIsa& isa) { hwy::SetSupportedTargetsForTest(isa.target); }
  ~ForcedIsa() { hwy::SetSupportedTargetsForTest(0); }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;
};

}  // namespace ikv::testing
