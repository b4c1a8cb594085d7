#include "text/tokenizer_gguf.h"

#include <cmath>
#include <utility>
#include <variant>

namespace ikv {
namespace {

Error wrong_type(std::string_view key, std::string_view expected) {
  return invalid_file("the file's '" + std::string(key) + "' is not " + std::string(expected));
}

/// A token id, or kNoToken when the key is absent.
Result<TokenId> token_id(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return kNoToken;
  int64_t id = -1;
  if (const auto* number = std::get_if<uint64_t>(value)) {
    id = *number > INT32_MAX ? -1 : static_cast<int64_t>(*number);
  } else if (const auto* signed_number = std::get_if<int64_t>(value)) {
    id = *signed_number;
  }
  if (id < 0 || id > INT32_MAX) return wrong_type(key, "a token id");
  return static_cast<TokenId>(id);
}

Result<std::optional<bool>> flag(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return std::optional<bool>();
  if (const auto* boolean = std::get_if<bool>(value)) return std::optional<bool>(*boolean);
  return wrong_type(key, "true or false");
}

Result<std::optional<std::string>> text(const GgufFile& file, std::string_view key) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return std::optional<std::string>();
  if (const auto* found = std::get_if<std::string_view>(value)) {
    return std::optional<std::string>(*found);
  }
  return wrong_type(key, "a string");
}

Result<std::vector<std::string>> texts(const GgufFile& file, std::string_view key) {
  IKV_ASSIGN_OR_RETURN(const auto values, file.strings(key));
  return std::vector<std::string>(values.begin(), values.end());
}

Result<std::vector<TokenType>> token_types(const GgufFile& file, std::string_view key) {
  std::vector<TokenType> types;
  if (file.find(key) == nullptr) return types;
  IKV_ASSIGN_OR_RETURN(const auto values, file.numbers(key));
  types.reserve(values.size());
  for (double value : values) {
    // llama.cpp takes 0, "undefined", as a plain token.
    if (!(value >= 0 && value <= 6) || value != std::floor(value)) {
      return wrong_type(key, "a list of token types, 1 to 6");
    }
    types.push_back(value == 0 ? TokenType::kNormal : static_cast<TokenType>(value));
  }
  return types;
}

}  // namespace

Result<TokenizerSpec> tokenizer_spec_from_gguf(const GgufFile& file) {
  TokenizerSpec spec;
  IKV_ASSIGN_OR_RETURN(const std::string_view model, file.string("tokenizer.ggml.model"));
  spec.model = model;
  if (spec.model != "gpt2" && spec.model != "llama") return spec;  // create() refuses it by name
  IKV_ASSIGN_OR_RETURN(const auto pre_tokenizer, text(file, "tokenizer.ggml.pre"));
  spec.pre_tokenizer = pre_tokenizer.value_or("default");
  IKV_ASSIGN_OR_RETURN(spec.tokens, texts(file, "tokenizer.ggml.tokens"));
  IKV_ASSIGN_OR_RETURN(spec.types, token_types(file, "tokenizer.ggml.token_type"));
  if (spec.model == "llama") {
    IKV_ASSIGN_OR_RETURN(const auto scores, file.numbers("tokenizer.ggml.scores"));
    spec.scores.assign(scores.begin(), scores.end());
  } else {
    IKV_ASSIGN_OR_RETURN(spec.merges, texts(file, "tokenizer.ggml.merges"));
  }
  const std::pair<const char*, TokenId*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &spec.bos},
      {"tokenizer.ggml.eos_token_id", &spec.eos},
      {"tokenizer.ggml.eot_token_id", &spec.eot},
      {"tokenizer.ggml.eom_token_id", &spec.eom},
      {"tokenizer.ggml.unknown_token_id", &spec.unknown},
      {"tokenizer.ggml.padding_token_id", &spec.padding}};
  for (const auto& [key, id] : ids) {
    IKV_ASSIGN_OR_RETURN(*id, token_id(file, key));
  }
  IKV_ASSIGN_OR_RETURN(spec.add_bos, flag(file, "tokenizer.ggml.add_bos_token"));
  IKV_ASSIGN_OR_RETURN(spec.add_space_prefix, flag(file, "tokenizer.ggml.add_space_prefix"));
  return spec;
}

Result<std::optional<std::string>> chat_template_from_gguf(const GgufFile& file) {
  return text(file, "tokenizer.chat_template");
}

Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const GgufFile& file) {
  IKV_ASSIGN_OR_RETURN(TokenizerSpec spec, tokenizer_spec_from_gguf(file));
  return Tokenizer::create(std::move(spec));
}

Result<std::unique_ptr<ChatTemplate>> load_chat_template(
    const GgufFile& file, std::shared_ptr<const Tokenizer> tokenizer) {
  IKV_ASSIGN_OR_RETURN(std::optional<std::string> source, chat_template_from_gguf(file));
  return ChatTemplate::create(std::move(source), std::move(tokenizer));
}

}  // namespace ikv
