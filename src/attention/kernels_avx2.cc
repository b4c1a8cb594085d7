// Attention kernels compiled for the AVX2 target.
#if defined(__x86_64__)

#include <cmath>
#include <cstring>

#include "attention/attention_kernels.h"
#include "quant/kv_codec_target.h"

IKV_TARGET_AVX2_BEGIN
#define IKV_ATTENTION_NAMESPACE attention_avx2
#include "attention/kernels_portable-inl.h"
IKV_TARGET_END

namespace ikv {
const AttentionKernels kAttentionAvx2 = IKV_ATTENTION_TABLE;
}  // namespace ikv

#endif
