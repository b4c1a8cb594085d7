#include "text/pre_tokenizers.h"

#include <array>

namespace ikv {
namespace {

// The expressions are part of the models' formats: GPT-2's tokenizer, and the tokenizer.json files
// of Qwen2, Llama 3 and SmolLM.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
constexpr std::string_view kSingleDigit = R"(\p{N})";
constexpr std::string_view kLlama3 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"
    R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kPunctuation = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kDigits = R"(\p{N}+)";
constexpr std::string_view kThreeDigits = R"([0-9][0-9][0-9])";

struct Named {
  std::string_view name;
  PreTokenizer value;
};

const std::array<Named, 5>& table() {
  static const std::array<Named, 5> kTable = {{
      {"smollm", {{kSingleDigit, kGpt2}, false, false}},
      {"gpt-2", {{kGpt2}, false, false}},
      {"qwen2", {{kQwen2}, false, false}},
      {"llama-bpe", {{kLlama3}, true, true}},
      {"default", {{kPunctuation, kGpt2, kDigits, kThreeDigits}, false, false}},
  }};
  return kTable;
}

}  // namespace

std::string supported_pre_tokenizers() {
  std::string names;
  for (const Named& entry : table()) {
    if (!names.empty()) names += ", ";
    names += entry.name;
  }
  return names;
}

Result<PreTokenizer> find_pre_tokenizer(std::string_view name) {
  for (const Named& entry : table()) {
    if (entry.name == name) return entry.value;
  }
  return unsupported("the pre-tokenizer '" + std::string(name) +
                     "' is not supported; supported: " + supported_pre_tokenizers());
}

}  // namespace ikv
