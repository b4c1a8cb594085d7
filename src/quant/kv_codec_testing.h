// For tests of the KV codecs and of attention.
#pragma once

#include <span>

#include "base/cpu_isa.h"

namespace ikv {

/// What this machine can run, ascending.
inline std::span<const CpuIsa> runnable_cpu_isas() {
  return all_cpu_isas().first(static_cast<size_t>(detected_cpu_isa()) + 1);
}

}  // namespace ikv
