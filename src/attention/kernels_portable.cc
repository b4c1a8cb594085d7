// Attention kernels for any machine.
#include <cmath>
#include <cstring>

#include "attention/attention_kernels.h"
#include "attention/prefill_kernels.h"

#define IKV_ATTENTION_NAMESPACE attention_portable
#include "attention/kernels_portable-inl.h"

namespace ikv {

const AttentionKernels kAttentionPortable = IKV_ATTENTION_TABLE;

const AttentionKernels& attention_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512Vnni) return kAttentionAvx512;
  if (isa == CpuIsa::kAvx2) return kAttentionAvx2;
#endif
  (void)isa;
  return kAttentionPortable;
}

const PrefillKernels* prefill_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512Vnni) return &kPrefillAvx512;
#endif
  (void)isa;
  return nullptr;
}

}  // namespace ikv
