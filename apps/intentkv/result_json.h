// Replies and conversations as JSON, for scripts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "intentkv/generation.h"
#include "intentkv/message.h"
#include "intentkv/result.h"

namespace ikv {

/// {text, tokens, finish_reason, usage, timings, logprobs?}; logprobs only where they were asked
/// for.
nlohmann::ordered_json generation_to_json(const GenerationResult& result);

/// An OpenAI-style message object.
nlohmann::ordered_json message_to_json(const Message& message);

/// A conversation read from a file: an array of messages, or an object {messages, tools?}.
struct Conversation {
  std::vector<Message> messages;
  std::string tools_json;  ///< empty: none
};

/// Reads a conversation. Errors name the file, the message's index and the field.
Result<Conversation> load_conversation(const std::string& path);

/// Writes {messages, tools?} so that load_conversation() reads it back. Errors: kIo.
Status save_conversation(const std::string& path, const Conversation& conversation);

}  // namespace ikv
