#include "engine/pool_setup.h"

#include "kv/key_codes.h"
#include "quant/kv_codec.h"

namespace ikv {

KvPoolConfig make_pool_config(const Model& model, KvFormats formats, int block_tokens, bool codes,
                              bool demotable) {
  KvPoolConfig pool;
  for (int layer = 0; layer < model.config().num_layers; ++layer) {
    const AttentionSpec& spec = model.attention_spec(layer);
    pool.layers.push_back({spec.num_kv_heads, spec.head_dim});
  }
  pool.formats = formats;
  if (demotable && formats != kColdFormats) pool.cold_formats = {kColdFormats};
  pool.block_tokens = block_tokens;
  if (codes) pool.code_bytes_per_token = key_code_bytes_per_token;
  pool.make_layout = make_kv_page_layout;
  return pool;
}

}  // namespace ikv
