// The ways in which byte-level BPE models cut text before merging, by the name that GGUF files
// give.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace ikv {

/// How a byte-level BPE model cuts text: regular expressions applied in turn, each to the pieces
/// that the one before left; matches and what lies between them are pieces.
struct PreTokenizer {
  std::vector<std::string_view> split_patterns;
  bool ignore_merges = false;    ///< a piece that is itself a token is not built by merges
  bool default_add_bos = false;  ///< whether BOS is added when the file does not say
};

/// The pre-tokenizer of `tokenizer.ggml.pre`. kUnsupported with the name and the supported list.
Result<PreTokenizer> find_pre_tokenizer(std::string_view name);

/// Supported names, comma-separated, for messages.
std::string supported_pre_tokenizers();

}  // namespace ikv
