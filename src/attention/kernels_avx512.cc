#include "attention/kernels_avx512.h"

#if defined(__x86_64__)

namespace ikv {

const AttentionKernels& attention_kernels_avx512() {
  static constexpr AttentionKernels kTable = {
      attention_avx512::quantise,

      {attention_avx512::score_f32, attention_avx512::score_f16, attention_avx512::score_bf16,
       attention_avx512::score_int8, attention_avx512::score_int4},
      attention_avx512::finish_logits,
      attention_avx512::softmax,
      {attention_avx512::values_f32, attention_avx512::values_f16, attention_avx512::values_bf16,
       attention_avx512::values_int8, attention_avx512::values_int4}};
  return kTable;
}

}  // namespace ikv

#endif
