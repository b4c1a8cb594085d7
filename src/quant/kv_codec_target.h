// Instruction sets for a part of a file: the KV codecs and the attention kernels are compiled for
// each value of CpuIsa.
#pragma once

// IKV_TARGET_*_BEGIN .. IKV_TARGET_END: functions between them may use the instructions. Headers
// are included before, so that no inline function of a library is compiled with them: the linker
// could otherwise give that copy to code that runs on any machine.
#if defined(__x86_64__)
// clang-format off
#define IKV_AVX512_SETS_ "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"
#define IKV_CODEC_PRAGMA_(text) _Pragma(#text)
#if defined(__clang__)
#define IKV_CODEC_TARGET_(sets) \
  IKV_CODEC_PRAGMA_(clang attribute push(__attribute__((target(sets))), apply_to = function))
#define IKV_TARGET_END IKV_CODEC_PRAGMA_(clang attribute pop)
#define IKV_TARGET_AVX512_BEGIN IKV_CODEC_TARGET_(IKV_AVX512_SETS_)
#else
#define IKV_CODEC_TARGET_(sets) \
  IKV_CODEC_PRAGMA_(GCC push_options) IKV_CODEC_PRAGMA_(GCC target(sets))
#define IKV_TARGET_END IKV_CODEC_PRAGMA_(GCC pop_options)
#define IKV_TARGET_AVX512_BEGIN \
  IKV_CODEC_TARGET_(IKV_AVX512_SETS_) IKV_CODEC_PRAGMA_(GCC target("prefer-vector-width=512"))
#endif
#define IKV_TARGET_AVX2_BEGIN IKV_CODEC_TARGET_("avx2,fma,f16c")
// clang-format on
#endif
