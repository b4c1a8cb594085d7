// The registry of architectures: from a file's metadata to a DecoderSpec.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "gguf/reader.h"
#include "model/decoder_spec.h"

namespace ikv {

/// How one architecture is recognised and described. Tensor names are GGUF's common ones; what an
/// architecture has of them follows from its LayerSpec.
struct Architecture {
  const char* name;  ///< general.architecture
  Result<DecoderSpec> (*describe)(const GgufFile& file);
};

/// Every supported architecture.
std::span<const Architecture> architectures();

/// Finds the file's architecture and describes it; kUnsupported, with the list, if it is unknown.
Result<DecoderSpec> describe_decoder(const GgufFile& file);

/// Llama: RMSNorm, rotary embedding, grouped-query attention, SwiGLU (Touvron et al. 2023,
/// section 2.2; Mistral, SmolLM and TinyLlama files say "llama" too).
Result<DecoderSpec> describe_llama(const GgufFile& file);

/// Numbers that all architectures have under the same names, checked for sense on their own and
/// against each other (not against tensors: load_weights() does that).
Result<ModelConfig> read_common_config(const GgufFile& file, const std::string& architecture);

/// RoPE of `head_dim` channels from rope.* keys and, if present, the rope_freqs.weight tensor.
Result<RopeSpec> read_rope(const GgufFile& file, const ModelConfig& config, RopePairs pairs);

}  // namespace ikv
