#include "quant/kv_codec_target.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"

namespace ikv {
namespace {

constexpr KernelTarget kTargets[] = {KernelTarget::kPortable, KernelTarget::kAvx2,
                                     KernelTarget::kAvx512};

size_t count_runnable() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi2");
  if (!avx2) return 1;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vnni");
  return avx512 ? 3 : 2;
#else
  return 1;
#endif
}

std::atomic<KernelTarget>& current() {
  static std::atomic<KernelTarget> target = runnable_kernel_targets().back();
  return target;
}

}  // namespace

const char* kernel_target_name(KernelTarget target) {
  switch (target) {
    case KernelTarget::kPortable:
      return "portable";
    case KernelTarget::kAvx2:
      return "avx2";
    case KernelTarget::kAvx512:
      return "avx512";
  }
  return "unknown";
}

KernelTarget kernel_target() {
  return current().load(std::memory_order_relaxed);
}

std::span<const KernelTarget> runnable_kernel_targets() {
  static const size_t count = count_runnable();
  return std::span<const KernelTarget>(kTargets).first(count);
}

void override_kernel_target(KernelTarget target) {
  const auto runnable = runnable_kernel_targets();
  IKV_CHECK(std::find(runnable.begin(), runnable.end(), target) != runnable.end());
  current().store(target, std::memory_order_relaxed);
}

}  // namespace ikv
