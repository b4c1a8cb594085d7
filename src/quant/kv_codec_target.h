// Which instruction sets the KV codecs and the attention kernels are compiled for and run with.
#pragma once

#include <span>

namespace ikv {

/// Sets of x86 instructions that a kernel is compiled for; kPortable is plain C++ for any machine.
/// kAvx512 means F, BW, VL, DQ, VBMI and VNNI (Ice Lake, Zen 4 and later).
enum class KernelTarget { kPortable, kAvx2, kAvx512 };

/// "portable", "avx2", "avx512".
const char* kernel_target_name(KernelTarget target);

/// The best target of this machine, or the one that override_kernel_target() chose. Thread-safe.
KernelTarget kernel_target();

/// All targets that this machine can run, the portable one first.
std::span<const KernelTarget> runnable_kernel_targets();

/// For tests and measurements: the target of calls from now on. It must be runnable.
void override_kernel_target(KernelTarget target);

}  // namespace ikv

// IKV_TARGET_*_BEGIN .. IKV_TARGET_END: functions between them may use the instructions. Headers
// are included before, so that no inline function of a library is compiled with them: the linker
// could otherwise give that copy to code that runs on any machine.
#if defined(__x86_64__) && defined(__clang__)
#define IKV_TARGET_AVX2_BEGIN                                                      \
  _Pragma(                                                                         \
      "clang attribute push(__attribute__((target(\"avx2,fma,f16c,bmi,bmi2\"))), " \
      "apply_to = function)")
#define IKV_TARGET_AVX512_BEGIN                                                      \
  _Pragma(                                                                           \
      "clang attribute push(__attribute__((target(\"avx2,fma,f16c,bmi,bmi2,avx512f," \
      "avx512bw,avx512vl,avx512dq,avx512vbmi,avx512vnni\"))), apply_to = function)")
#define IKV_TARGET_END _Pragma("clang attribute pop")
#elif defined(__x86_64__)
#define IKV_TARGET_AVX2_BEGIN \
  _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,f16c,bmi,bmi2\")")
#define IKV_TARGET_AVX512_BEGIN                                                 \
  _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,f16c,bmi,bmi2\")") \
      _Pragma("GCC target(\"avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi\")")  \
          _Pragma("GCC target(\"avx512vnni,prefer-vector-width=512\")")
#define IKV_TARGET_END _Pragma("GCC pop_options")
#endif
