// What a model file holds and what it costs, in one struct.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/result.h"
#include "core/kv_format.h"
#include "gguf/reader.h"
#include "model/decoder_spec.h"

namespace ikv {

/// Facts of a GGUF file. `config` is absent, and `refusal` says why, where the engine cannot run
/// it.
struct ModelSummary {
  std::string path;
  uint64_t file_bytes = 0;
  uint32_t gguf_version = 0;
  std::string name;
  std::string architecture;
  uint64_t num_parameters = 0;                    ///< elements of all tensors
  std::map<std::string, uint64_t> bytes_by_type;  ///< tensors' bytes, by weight type
  std::optional<ModelConfig> config;
  std::string refusal;
  std::map<std::string, double> kv_bytes_per_token;  ///< all layers, by cache format
  std::string tokenizer_model;
  std::string pre_tokenizer;
  uint64_t vocab_size = 0;
  std::string chat_template;  ///< empty: none
};

/// Reads the facts; only a broken file is an error, an unsupported one is described.
Result<ModelSummary> summarise_model(const GgufFile& file);

/// Bytes of one cached token over all layers and KV heads, page overhead included.
Result<double> kv_bytes_per_token(const DecoderSpec& spec, KvFormats formats, int block_tokens);

}  // namespace ikv
