// KV codecs for any machine.
#include <cmath>
#include <cstring>

#include "quant/kv_codec_kernels.h"

#define IKV_CODEC_NAMESPACE kv_codec_portable
#include "quant/kv_codec_kernels-inl.h"

namespace ikv {
const KvCodecKernels& kv_codec_kernels_portable() {
  static constexpr KvCodecKernels kTable = {
      kv_codec_portable::decode, kv_codec_portable::store_plain, kv_codec_portable::convert};
  return kTable;
}
}  // namespace ikv
