#include <cmath>
#include <string>

#include "model/architecture.h"
#include "model/metadata.h"

namespace ikv {

Result<DecoderSpec> describe_llama(const GgufFile& file) {
  DecoderSpec spec;
  IKV_ASSIGN_OR_RETURN(spec.config, read_common_config(file, "llama"));
  const ModelConfig& config = spec.config;
  // GGUF's Llama files have the rows of q and k permuted so that pairs are adjacent.
  IKV_ASSIGN_OR_RETURN(RopeSpec rope, read_rope(file, config, RopePairs::kInterleaved));
  spec.ropes.push_back(std::move(rope));

  LayerSpec layer;
  layer.attention.num_heads = config.num_heads;
  layer.attention.num_kv_heads = config.num_kv_heads;
  layer.attention.head_dim = config.head_dim;
  layer.attention.scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  layer.attention.rope = &spec.ropes[0];
  layer.activation = GateActivation::kSilu;
  spec.layers.assign(static_cast<size_t>(config.num_layers), layer);
  return spec;
}

}  // namespace ikv
