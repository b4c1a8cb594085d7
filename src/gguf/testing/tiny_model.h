// Tiny random Llama files, for tests of everything that loads a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/testing/writer.h"

namespace ikv::testing {

/// The default sizes suit every weight format (rows of 256).
struct TinyModelOptions {
  WeightType type = WeightType::kF32;  ///< of all matrices; norms and biases are F32
  int num_layers = 2;
  int hidden_size = 256;
  int ffn_size = 512;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 64;
  int vocab_size = 96;  ///< with `tokenizer`, the number of its tokens instead
  int context_tokens = 128;
  bool tied_output = true;
  bool biases = false;
  bool tokenizer = false;  ///< with a byte-level vocabulary and a chat template
  uint32_t seed = 1;
};

/// The file as a writer, so that a test can still change or break it.
GgufWriter tiny_model(const TinyModelOptions& options);

/// Writes a tiny model that a whole engine can run: like tiny_model(), always with a tokenizer
/// (byte level BPE, every byte is a token, some merges, <|endoftext|>, <|im_start|> and <|im_end|>)
/// and a ChatML template. Errors: kIo.
Status write_tiny_llama(const std::string& path, TinyModelOptions options);

/// Adds that tokenizer and template; returns the number of tokens.
int add_tiny_tokenizer(GgufWriter& writer);

/// Random blocks of a format whose values have a standard deviation of about 0.06. `num_elements`
/// is a multiple of the format's block.
std::vector<std::byte> random_weights(WeightType type, uint64_t num_elements, uint32_t seed);

}  // namespace ikv::testing
