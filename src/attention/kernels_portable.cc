// Attention kernels for any machine, and the choice among all.
#include <cmath>
#include <cstring>

#include "attention/attention_kernels.h"
#include "attention/prefill_kernels.h"

#define IKV_ATTENTION_NAMESPACE attention_portable
#include "attention/vector_math-inl.h"
// After vector_math-inl.h.
#include "attention/decode_kernels-inl.h"
#include "attention/prefill_kernels-inl.h"

namespace ikv {

const AttentionKernels& attention_kernels_portable() {
  return attention_portable::kDecodeTable;
}

const PrefillKernels& prefill_kernels_portable() {
  return attention_portable::kPrefillTable;
}

const AttentionKernels& attention_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512Vnni) return attention_kernels_avx512();
  if (isa == CpuIsa::kAvx2) return attention_kernels_avx2();
#endif
  (void)isa;
  return attention_kernels_portable();
}

const PrefillKernels& prefill_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512Vnni) return prefill_kernels_avx512();
  if (isa == CpuIsa::kAvx2) return prefill_kernels_avx2();
#endif
  (void)isa;
  return prefill_kernels_portable();
}

}  // namespace ikv
