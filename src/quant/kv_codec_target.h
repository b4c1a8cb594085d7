// Instruction sets for a part of a file: the KV codecs and the attention kernels are compiled for
// each value of CpuIsa.
#pragma once

// IKV_TARGET_*_BEGIN .. IKV_TARGET_END: functions between them may use the instructions. Headers
// are included before, so that no inline function of a library is compiled with them: the linker
// could otherwise give that copy to code that runs on any machine.
#if defined(__x86_64__) && defined(__clang__)
#define IKV_TARGET_AVX2_BEGIN                                             \
  _Pragma(                                                                \
      "clang attribute push(__attribute__((target(\"avx2,fma,f16c\"))), " \
      "apply_to = function)")
#define IKV_TARGET_AVX512_BEGIN                                             \
  _Pragma(                                                                  \
      "clang attribute push(__attribute__((target(\"avx2,fma,f16c,avx512f," \
      "avx512bw,avx512vl,avx512dq,avx512vnni\"))), apply_to = function)")
#define IKV_TARGET_END _Pragma("clang attribute pop")
#elif defined(__x86_64__)
#define IKV_TARGET_AVX2_BEGIN _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,f16c\")")
#define IKV_TARGET_AVX512_BEGIN                                        \
  _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,f16c\")") \
      _Pragma("GCC target(\"avx512f,avx512bw,avx512vl,avx512dq\")")    \
          _Pragma("GCC target(\"avx512vnni,prefer-vector-width=512\")")
#define IKV_TARGET_END _Pragma("GCC pop_options")
#endif
