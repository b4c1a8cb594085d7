// What a decoder-only transformer is, in data: architectures fill it in, one forward runs it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/attention_spec.h"

namespace ikv {

/// The numbers of a model, checked against each other and against the file's tensors.
struct ModelConfig {
  std::string architecture;  ///< GGUF's general.architecture
  std::string name;          ///< GGUF's general.name, may be empty
  int num_layers = 0;
  int hidden_size = 0;
  int ffn_size = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;
  int context_tokens = 0;  ///< what the model was trained for
  float norm_epsilon = 0.0f;
  bool tied_output = false;  ///< the output matrix is the embedding
  uint64_t num_parameters = 0;
};

/// f of the gated feed-forward f(gate(x)) * up(x) (Shazeer 2020).
enum class GateActivation : uint8_t { kSilu, kGeluTanh };

/// One layer: attention's shape and which optional parts it has.
struct LayerSpec {
  AttentionSpec attention;  ///< its `rope` points into DecoderSpec::ropes
  bool qk_norm = false;     ///< RMSNorm of each query and key head before RoPE
  bool post_norms = false;  ///< RMSNorm of each branch's output before it is added
  GateActivation activation = GateActivation::kSilu;
};

/// The description that load() makes of a file. Move-only: layers point into `ropes`.
struct DecoderSpec {
  DecoderSpec() = default;
  DecoderSpec(DecoderSpec&&) = default;
  DecoderSpec& operator=(DecoderSpec&&) = default;
  DecoderSpec(const DecoderSpec&) = delete;
  DecoderSpec& operator=(const DecoderSpec&) = delete;

  ModelConfig config;
  std::vector<RopeSpec> ropes;
  std::vector<LayerSpec> layers;
  float embedding_scale = 1.0f;
  float logit_softcap = 0.0f;  ///< c·tanh(logit/c) when > 0
};

}  // namespace ikv
