// Attention kernels compiled for AVX2.
#if defined(__x86_64__)

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "attention/attention_kernels.h"
#include "attention/prefill_kernels.h"
#include "quant/kv_codec_target.h"

IKV_TARGET_AVX2_BEGIN
#define IKV_ATTENTION_NAMESPACE attention_avx2
#define IKV_ATTENTION_AVX2
#include "attention/vector_math-inl.h"
// After vector_math-inl.h.
#include "attention/decode_kernels-inl.h"
#include "attention/prefill_kernels-inl.h"
IKV_TARGET_END

namespace ikv {

const AttentionKernels& attention_kernels_avx2() {
  return attention_avx2::kDecodeTable;
}

const PrefillKernels& prefill_kernels_avx2() {
  return attention_avx2::kPrefillTable;
}

}  // namespace ikv

#endif
