#include "base/cpu_isa.h"

#include <hwy/targets.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "base/highway_target.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif
#include "base/log.h"

namespace ikv {
namespace {

constexpr CpuIsa kAll[] = {CpuIsa::kScalar, CpuIsa::kAvx2, CpuIsa::kAvx512Vnni};
constexpr int kNotForced = -1;
std::atomic<int> forced{kNotForced};

#if defined(__x86_64__) && defined(__GNUC__)
// Clang 16's __builtin_cpu_supports() does not know it.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

CpuIsa detect() {
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();  // tests may ask before main()
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c()) {
    return CpuIsa::kScalar;
  }
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  return avx512 ? CpuIsa::kAvx512Vnni : CpuIsa::kAvx2;
#else
  return CpuIsa::kScalar;
#endif
}

std::string choices() {
  std::string names;
  for (const CpuIsa isa : kAll) {
    if (isa > detected_cpu_isa()) break;
    if (!names.empty()) names += ", ";
    names += cpu_isa_name(isa);
  }
  return names;
}

// Every AVX-512 target of Highway counts: what our set needs is checked by detect().
constexpr int64_t kHighwayAvx512 = HWY_AVX3 | HWY_AVX3_DL;
constexpr int64_t kHighwayAvx2 = HWY_AVX2;

// The best set that Highway's kernels may use now.
CpuIsa highway_limit() {
  const int64_t target = highway_target();
  if ((target & kHighwayAvx512) != 0) return CpuIsa::kAvx512Vnni;
  return (target & kHighwayAvx2) != 0 ? CpuIsa::kAvx2 : CpuIsa::kScalar;
}

// Kernels that are written with Highway shall obey too; its baseline (SSE2) cannot be switched off.
void limit_highway(CpuIsa isa) {
  if (isa < CpuIsa::kAvx512Vnni) hwy::DisableTargets(kHighwayAvx512);
  if (isa < CpuIsa::kAvx2) hwy::DisableTargets(kHighwayAvx512 | kHighwayAvx2);
}

CpuIsa choose() {
  const char* wanted = std::getenv("IKV_ISA");
  if (wanted == nullptr || *wanted == '\0') return detected_cpu_isa();
  for (const CpuIsa isa : kAll) {
    if (cpu_isa_name(isa) != wanted || isa > detected_cpu_isa()) continue;
    limit_highway(isa);
    return isa;
  }
  log(LogLevel::kWarning,
      "IKV_ISA='" + std::string(wanted) + "' is ignored; this machine can run: " + choices());
  return detected_cpu_isa();
}

}  // namespace

std::span<const CpuIsa> all_cpu_isas() {
  return kAll;
}

std::string_view cpu_isa_name(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kScalar:
      return "scalar";
    case CpuIsa::kAvx2:
      return "avx2";
    case CpuIsa::kAvx512Vnni:
      return "avx512vnni";
  }
  return "unknown";
}

CpuIsa detected_cpu_isa() {
  static const CpuIsa kIsa = detect();
  return kIsa;
}

CpuIsa cpu_isa() {
  const int value = forced.load(std::memory_order_relaxed);
  if (value != kNotForced) return static_cast<CpuIsa>(value);
  static const CpuIsa kChosen = choose();
  return std::min(kChosen, highway_limit());
}

void force_cpu_isa(std::optional<CpuIsa> isa) {
  IKV_CHECK(!isa || *isa <= detected_cpu_isa());
  forced.store(isa ? static_cast<int>(*isa) : kNotForced, std::memory_order_relaxed);
}

}  // namespace ikv
