// Instruction sets for a part of a file, for both compilers. Between the two, write no lambdas that
// escape and include nothing: inline functions of headers must stay runnable everywhere.
#pragma once

#define IKV_PRAGMA_(text) _Pragma(#text)

#if defined(__clang__)
#define IKV_TARGET_BEGIN(isa) \
  IKV_PRAGMA_(clang attribute push(__attribute__((target(isa))), apply_to = function))
#define IKV_TARGET_END IKV_PRAGMA_(clang attribute pop)
#else
#define IKV_TARGET_BEGIN(isa) IKV_PRAGMA_(GCC push_options) IKV_PRAGMA_(GCC target(isa))
#define IKV_TARGET_END IKV_PRAGMA_(GCC pop_options)
#endif
