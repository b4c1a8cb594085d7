#include "engine/pool_setup.h"

#include "calibration/calibrate.h"
#include "engine/page_view_cache.h"
#include "kv/key_codes.h"
#include "kv/page_digest.h"
#include "quant/kv_codec.h"

namespace ikv {

KvPoolConfig make_pool_config(const Model& model, KvFormats formats, int block_tokens, bool codes,
                              bool demotable, bool digests) {
  KvPoolConfig pool;
  pool.layers = kv_layer_shapes(model);
  pool.formats = formats;
  if (demotable && formats != kColdFormats) pool.cold_formats = {kColdFormats};
  pool.block_tokens = block_tokens;
  if (codes) pool.code_bytes_per_token = key_code_bytes_per_token;
  if (digests) pool.digest_bytes_per_page = page_digest_bytes;
  pool.make_layout = make_kv_page_layout;
  size_t pages_per_block = 0;
  for (const KvLayerShape& layer : pool.layers) {
    pages_per_block += static_cast<size_t>(layer.num_kv_heads);
  }
  pool.sequence_block_bytes = PageViewCache::bytes_per_block(pages_per_block, codes);
  return pool;
}

}  // namespace ikv
