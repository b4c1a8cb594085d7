// Runs the oracle tests on each instruction set that this machine has, not only on the best.
#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <vector>

#include "base/cpu_isa.h"

namespace ikv::testing {

/// What this machine can run, ascending.
inline std::vector<CpuIsa> supported_isas() {
  std::vector<CpuIsa> isas;
  for (const CpuIsa isa : all_cpu_isas()) {
    if (isa <= detected_cpu_isa()) isas.push_back(isa);
  }
  return isas;
}

/// While it lives, kernels are those of one instruction set: ours by cpu_isa(), Highway's by its
/// own table of targets, where a lower set must not be joined by a higher one.
class ForcedIsa {
 public:
  explicit ForcedIsa(CpuIsa isa) {
    force_cpu_isa(isa);
    int64_t targets = hwy::SupportedTargets();
    if (isa == CpuIsa::kScalar) targets = HWY_SCALAR | HWY_EMU128;
    if (isa == CpuIsa::kAvx2) targets &= ~(HWY_AVX3 | HWY_AVX3_DL);
    hwy::SetSupportedTargetsForTest(targets);
  }
  ~ForcedIsa() {
    hwy::SetSupportedTargetsForTest(0);
    force_cpu_isa(std::nullopt);
  }
  ForcedIsa(const ForcedIsa&) = delete;
  ForcedIsa& operator=(const ForcedIsa&) = delete;
};

}  // namespace ikv::testing
