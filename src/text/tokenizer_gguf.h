// Tokenizer and chat template of a GGUF file.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "gguf/reader.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ikv {

/// What the keys tokenizer.ggml.* say. kInvalidFile with the key for a missing or malformed one;
/// whether model and pre-tokenizer are supported is Tokenizer::create()'s to say. Copies: the file
/// may go.
Result<TokenizerSpec> tokenizer_spec_from_gguf(const GgufFile& file);

/// tokenizer.chat_template, if the file has one. kInvalidFile if it is no string.
Result<std::optional<std::string>> chat_template_from_gguf(const GgufFile& file);

/// The file's tokenizer, ready.
Result<std::shared_ptr<const Tokenizer>> load_tokenizer(const GgufFile& file);

/// The file's chat format, ready; see ChatTemplate::create() for files without one.
Result<std::unique_ptr<ChatTemplate>> load_chat_template(
    const GgufFile& file, std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace ikv
