// /v1/chat/completions: from the client's JSON to the engine's request.
#pragma once

#include <string>
#include <vector>

#include "intentkv/engine.h"
#include "server/json_input.h"

namespace ikv {

inline constexpr int kMaxChoices = 16;
inline constexpr size_t kMaxIdBytes = 256;
inline constexpr size_t kMaxRequestMessages = 100'000;

/// What a request for a reply asks for beside the engine's own part.
struct ReplyOptions {
  bool stream = false;
  bool include_usage = false;  ///< a last chunk with the usage
  bool parallel_tool_calls = true;
  int num_choices = 1;
};

/// A chat request, checked.
struct ChatCall {
  ChatRequest request;
  ReplyOptions options;
};

/// Reads a chat request. Unknown fields are ignored, wrong types and values refused with their
/// path. `defaults`: sampling of a request that does not say.
ApiResult<ChatCall> parse_chat_call(const Json& body, const GenerationConfig& defaults);

/// The fields that all endpoints share: sampling, stop, seed, logit_bias.
void read_sampling(const FieldReader& body, GenerationConfig& config);
/// The `intentkv` object: intent, plan_step, pin, explain. After the messages have been read.
void read_policy_fields(const FieldReader& body, ChatRequest& request);
/// stream, stream_options, n, parallel_tool_calls.
void read_reply_options(const FieldReader& body, ReplyOptions& options);
/// An array of OpenAI tool objects, checked, as JSON text; empty if there are none.
std::string read_tools(const FieldReader& body);
/// OpenAI's messages. A missing or empty list is refused.
std::vector<Message> read_messages(const FieldReader& body);
/// A string, or an array of text parts joined by line breaks. False if the fault was set.
bool read_text_content(const FieldReader& owner, const char* name, const Json& content,
                       std::string& text);
/// A whole text field: JSON text of an arguments field that may be a string or an object.
std::string arguments_text(const Json& arguments);

}  // namespace ikv
