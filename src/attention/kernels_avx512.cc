// Attention kernels compiled for the AVX512 target.
#if defined(__x86_64__)

#include <cmath>
#include <cstring>

#include "attention/attention_kernels.h"

IKV_TARGET_AVX512_BEGIN
#define IKV_ATTENTION_NAMESPACE attention_avx512
#include "attention/kernels_portable-inl.h"
IKV_TARGET_END

namespace ikv {
const AttentionKernels kAttentionAvx512 = IKV_ATTENTION_TABLE;
}  // namespace ikv

#endif
