// KV codecs compiled for the AVX512 target.
#include "quant/kv_codec_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "quant/kv_codec_target.h"

IKV_TARGET_AVX512_BEGIN
#define IKV_CODEC_NAMESPACE kv_codec_avx512
#define IKV_CODEC_F16C
#include "quant/kv_codec_kernels-inl.h"
IKV_TARGET_END

namespace ikv {
const KvCodecKernels& kv_codec_kernels_avx512() {
  static constexpr KvCodecKernels kTable = {kv_codec_avx512::decode, kv_codec_avx512::store_plain,
                                            kv_codec_avx512::convert};
  return kTable;
}
}  // namespace ikv

#endif
