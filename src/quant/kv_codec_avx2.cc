// KV codecs compiled for the AVX2 target.
#include "quant/kv_codec_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "quant/kv_codec_target.h"

IKV_TARGET_AVX2_BEGIN
#define IKV_CODEC_NAMESPACE kv_codec_avx2
#define IKV_CODEC_F16C
#include "quant/kv_codec_kernels-inl.h"
IKV_TARGET_END

namespace ikv {
const KvCodecKernels& kv_codec_kernels_avx2() {
  static constexpr KvCodecKernels kTable = {kv_codec_avx2::decode, kv_codec_avx2::store_plain,
                                            kv_codec_avx2::convert};
  return kTable;
}
}  // namespace ikv

#endif
