#include "model/architecture.h"

#include <string>

#include "model/metadata.h"
#include "model/model.h"

namespace ikv {
namespace {

constexpr Architecture kArchitectures[] = {{"llama", describe_llama}};

// Bounds that no real model comes near; products of two of them fit in 64 bits.
constexpr int kMaxLayers = 1024;
constexpr int kMaxWidth = 1 << 20;
constexpr int kMaxHeads = 1 << 14;
constexpr int kMaxHeadDim = 1 << 12;
constexpr int kMaxContext = 1 << 28;

Status read_heads(const ModelMetadata& metadata, ModelConfig& config) {
  IKV_ASSIGN_OR_RETURN(config.num_heads, metadata.integer("attention.head_count", 1, kMaxHeads));
  IKV_ASSIGN_OR_RETURN(config.num_kv_heads,
                       metadata.integer("attention.head_count_kv", 1, kMaxHeads, config.num_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    return invalid_file(metadata.key("attention.head_count") + " is " +
                        std::to_string(config.num_heads) + ", which is no multiple of the " +
                        std::to_string(config.num_kv_heads) + " KV heads");
  }
  if (!metadata.has("attention.key_length") && config.hidden_size % config.num_heads != 0) {
    return invalid_file(metadata.key("embedding_length") + " is " +
                        std::to_string(config.hidden_size) + ", which does not divide into " +
                        std::to_string(config.num_heads) + " heads, and there is no " +
                        metadata.key("attention.key_length"));
  }
  const int even_share = config.hidden_size / config.num_heads;
  IKV_ASSIGN_OR_RETURN(config.head_dim,
                       metadata.integer("attention.key_length", 1, kMaxHeadDim, even_share));
  IKV_ASSIGN_OR_RETURN(const int value_dim,
                       metadata.integer("attention.value_length", 1, kMaxHeadDim, config.head_dim));
  if (value_dim != config.head_dim) {
    return unsupported("keys of " + std::to_string(config.head_dim) + " and values of " +
                       std::to_string(value_dim) +
                       " channels a head; only equal sizes are supported");
  }
  if (config.head_dim > kMaxHeadDim) {
    return invalid_file("a head has " + std::to_string(config.head_dim) + " channels; at most " +
                        std::to_string(kMaxHeadDim) + " are supported");
  }
  return {};
}

}  // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

std::span<const char* const> supported_architectures() {
  static constexpr const char* kNames[] = {"llama"};
  static_assert(std::size(kNames) == std::size(kArchitectures));
  return kNames;
}

Result<DecoderSpec> describe_decoder(const GgufFile& file) {
  IKV_ASSIGN_OR_RETURN(const std::string name, file_architecture(file));
  std::string known;
  for (const Architecture& architecture : architectures()) {
    if (name == architecture.name) return architecture.describe(file);
    known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  return unsupported("the model's architecture '" + name +
                     "' is not supported; supported: " + known);
}

Result<ModelConfig> read_common_config(const GgufFile& file, const std::string& architecture) {
  const ModelMetadata metadata(file, architecture);
  ModelConfig config;
  config.architecture = architecture;
  IKV_ASSIGN_OR_RETURN(config.num_layers, metadata.integer("block_count", 1, kMaxLayers));
  IKV_ASSIGN_OR_RETURN(config.hidden_size, metadata.integer("embedding_length", 1, kMaxWidth));
  IKV_ASSIGN_OR_RETURN(config.ffn_size, metadata.integer("feed_forward_length", 1, kMaxWidth));
  IKV_ASSIGN_OR_RETURN(config.context_tokens, metadata.integer("context_length", 1, kMaxContext));
  IKV_ASSIGN_OR_RETURN(config.norm_epsilon,
                       metadata.number("attention.layer_norm_rms_epsilon", 0.0f, 1.0f));
  IKV_RETURN_IF_ERROR(read_heads(metadata, config));
  IKV_ASSIGN_OR_RETURN(const int num_experts, metadata.integer("expert_count", 0, kMaxWidth, 0));
  if (num_experts > 0) {
    return unsupported("mixture-of-experts models (" + metadata.key("expert_count") + " = " +
                       std::to_string(num_experts) + ") are not supported");
  }
  return config;
}

}  // namespace ikv
