// Vocabularies and texts for the tests of src/text, from tests/golden.
#pragma once

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace ikv::test {

inline nlohmann::json load_golden(const std::string& name) {
  std::ifstream file(std::string(IKV_SOURCE_DIR) + "/tests/golden/" + name);
  return nlohmann::json::parse(file);
}

/// A golden text: a string, or {"hex": …} for bytes that are not UTF-8.
inline std::string golden_text(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  const auto hex = value.at("hex").get<std::string>();
  std::string out;
  for (size_t i = 0; i < hex.size(); i += 2) {
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return out;
}

/// The small vocabulary of tokenizer_small.json under `key` ("bpe" or "spm") as a spec.
inline TokenizerSpec small_spec(const nlohmann::json& golden, const std::string& key) {
  const nlohmann::json& vocab = golden.at(key);
  TokenizerSpec spec;
  spec.model = key == "bpe" ? "gpt2" : "llama";
  spec.pre_tokenizer = "smollm";
  spec.tokens = vocab.at("tokens").get<std::vector<std::string>>();
  for (int type : vocab.at("types").get<std::vector<int>>()) {
    spec.types.push_back(static_cast<TokenType>(type));
  }
  if (vocab.contains("merges")) spec.merges = vocab["merges"].get<std::vector<std::string>>();
  if (vocab.contains("scores")) spec.scores = vocab["scores"].get<std::vector<float>>();
  spec.bos = vocab.at("bos").get<int>();
  spec.eos = vocab.at("eos").get<int>();
  spec.unknown = vocab.value("unknown", -1);
  return spec;
}

/// A tokenizer with ChatML's marks, or (spm) with Gemma's.
inline std::shared_ptr<const Tokenizer> small_tokenizer(const std::string& key = "bpe") {
  Result<std::shared_ptr<const Tokenizer>> tokenizer =
      Tokenizer::create(small_spec(load_golden("tokenizer_small.json"), key));
  return tokenizer.ok() ? *tokenizer : nullptr;
}

}  // namespace ikv::test
