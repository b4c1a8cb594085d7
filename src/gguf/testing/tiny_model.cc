#include "gguf/testing/tiny_model.h"

#include <cstring>

#include "gguf/testing/quantise.h"

namespace ikv::testing {
namespace {

class ModelBuilder {
 public:
  explicit ModelBuilder(const TinyModelOptions& options)
      : options_(options), seed_(options.seed * 1000) {}

  GgufWriter build() {
    set_metadata();
    if (options_.tokenizer) options_.vocab_size = add_tiny_tokenizer(writer_);
    const int q_width = options_.num_heads * options_.head_dim;
    const int kv_width = options_.num_kv_heads * options_.head_dim;
    const int hidden = options_.hidden_size;
    add("token_embd.weight", options_.type, {hidden, options_.vocab_size});
    for (int layer = 0; layer < options_.num_layers; ++layer) {
      const std::string prefix = "blk." + std::to_string(layer) + ".";
      norm(prefix + "attn_norm", hidden);
      linear(prefix + "attn_q", hidden, q_width);
      linear(prefix + "attn_k", hidden, kv_width);
      linear(prefix + "attn_v", hidden, kv_width);
      linear(prefix + "attn_output", q_width, hidden);
      norm(prefix + "ffn_norm", hidden);
      linear(prefix + "ffn_gate", hidden, options_.ffn_size);
      linear(prefix + "ffn_up", hidden, options_.ffn_size);
      linear(prefix + "ffn_down", options_.ffn_size, hidden);
    }
    norm("output_norm", hidden);
    if (!options_.tied_output) linear("output", hidden, options_.vocab_size);
    return std::move(writer_);
  }

 private:
  void set_metadata() {
    const auto u32 = [&](const char* key, int value) {
      writer_.set_u32(std::string("llama.") + key, static_cast<uint32_t>(value));
    };
    writer_.set_string("general.architecture", "llama");
    writer_.set_string("general.name", "tiny");
    u32("block_count", options_.num_layers);
    u32("context_length", options_.context_tokens);
    u32("embedding_length", options_.hidden_size);
    u32("feed_forward_length", options_.ffn_size);
    u32("attention.head_count", options_.num_heads);
    u32("attention.head_count_kv", options_.num_kv_heads);
    u32("attention.key_length", options_.head_dim);
    u32("attention.value_length", options_.head_dim);
    u32("rope.dimension_count", options_.head_dim);
    writer_.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    writer_.set_f32("llama.rope.freq_base", 10000.0f);
  }

  void add(const std::string& name, WeightType type, const std::vector<int>& dims) {
    std::vector<uint64_t> sizes;
    uint64_t num_elements = 1;
    for (const int dim : dims) {
      sizes.push_back(static_cast<uint64_t>(dim));
      num_elements *= sizes.back();
    }
    writer_.add_tensor({name, type, sizes, random_weights(type, num_elements, ++seed_)});
  }

  void linear(const std::string& name, int num_inputs, int num_outputs) {
    add(name + ".weight", options_.type, {num_inputs, num_outputs});
    if (options_.biases) add(name + ".bias", WeightType::kF32, {num_outputs});
  }

  // Around one, as in real models.
  void norm(const std::string& name, int size) {
    add(name + ".weight", WeightType::kF32, {size});
    GgufWriter::Tensor& tensor = *writer_.find_tensor(name + ".weight");
    for (size_t i = 0; i < tensor.data.size(); i += sizeof(float)) {
      float value;
      std::memcpy(&value, tensor.data.data() + i, sizeof(value));
      value += 1.0f;
      std::memcpy(tensor.data.data() + i, &value, sizeof(value));
    }
  }

  TinyModelOptions options_;
  uint32_t seed_;
  GgufWriter writer_;
};

// The character that stands for a byte in GPT-2's vocabularies: printable Latin-1 for itself, the
// others counted from U+0100.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> tokens;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const int code = printable ? byte : next++;
    if (code < 0x80) {
      tokens.emplace_back(1, static_cast<char>(code));
    } else {
      tokens.push_back(
          {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 63))});
    }
  }
  return tokens;
}

constexpr const char* kChatMl =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

}  // namespace

GgufWriter tiny_model(const TinyModelOptions& options) {
  return ModelBuilder(options).build();
}

Status write_tiny_llama(const std::string& path, TinyModelOptions options) {
  options.tokenizer = true;
  return write_file(path, tiny_model(options).finish());
}

int add_tiny_tokenizer(GgufWriter& writer) {
  constexpr int32_t kNormal = 1;
  constexpr int32_t kControl = 3;
  std::vector<std::string> tokens = byte_tokens();
  std::vector<std::string> merges;
  const auto merge = [&](const std::string& left, const std::string& right) {
    merges.push_back(std::string(left).append(" ").append(right));
    tokens.push_back(left + right);
  };
  merge("t", "h");
  merge("th", "e");
  merge("i", "n");
  merge("Ġ", "a");
  merge("Ġ", "the");
  merge("e", "r");
  merge("Ċ", "Ċ");
  std::vector<int32_t> types(tokens.size(), kNormal);
  const auto first_control = static_cast<uint32_t>(tokens.size());
  for (const char* control : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    tokens.emplace_back(control);
    types.push_back(kControl);
  }
  writer.set_string("tokenizer.ggml.model", "gpt2");
  writer.set_string("tokenizer.ggml.pre", "smollm");
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  writer.set_i32s("tokenizer.ggml.token_type", types);
  writer.set_strings("tokenizer.ggml.merges", merges);
  writer.set_u32("tokenizer.ggml.bos_token_id", first_control + 1);
  writer.set_u32("tokenizer.ggml.eos_token_id", first_control + 2);
  writer.set_u32("tokenizer.ggml.unknown_token_id", first_control);
  writer.set_u32("tokenizer.ggml.padding_token_id", first_control);
  writer.set_bool("tokenizer.ggml.add_bos_token", false);
  writer.set_string("tokenizer.chat_template", kChatMl);
  return static_cast<int>(tokens.size());
}

}  // namespace ikv::testing
