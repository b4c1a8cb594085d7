// Attention kernels for any machine.
#include <cmath>
#include <cstring>

#include "attention/attention_kernels.h"
#include "attention/prefill_kernels.h"

#define IKV_ATTENTION_NAMESPACE attention_portable
#include "attention/kernels_portable-inl.h"

namespace ikv {

const AttentionKernels kAttentionPortable = IKV_ATTENTION_TABLE;

const AttentionKernels& attention_kernels(KernelTarget target) {
#if defined(__x86_64__)
  if (target == KernelTarget::kAvx512) return kAttentionAvx512;
  if (target == KernelTarget::kAvx2) return kAttentionAvx2;
#endif
  (void)target;
  return kAttentionPortable;
}

const PrefillKernels* prefill_kernels(KernelTarget target) {
#if defined(__x86_64__)
  if (target == KernelTarget::kAvx512) return &kPrefillAvx512;
#endif
  (void)target;
  return nullptr;
}

}  // namespace ikv
