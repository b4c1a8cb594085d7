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

const AttentionKernels kAttentionPortable = attention_portable::kDecodeTable;
const PrefillKernels kPrefillPortable = attention_portable::kPrefillTable;

const AttentionKernels& attention_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512Vnni) return kAttentionAvx512;
  if (isa == CpuIsa::kAvx2) return kAttentionAvx2;
#endif
  (void)isa;
  return kAttentionPortable;
}

const PrefillKernels& prefill_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512Vnni) return kPrefillAvx512;
  if (isa == CpuIsa::kAvx2) return kPrefillAvx2;
#endif
  (void)isa;
  return kPrefillPortable;
}

}  // namespace ikv
