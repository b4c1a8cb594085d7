// /v1/responses: OpenAI's newer shape of a chat, from JSON to the engine's request.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "server/chat_request.h"

namespace ikv {

/// A responses request, checked.
struct ResponsesCall {
  ChatRequest request;
  ReplyOptions options;
  bool store = true;
  std::string instructions;  ///< not carried over to the next response
  std::string previous_response_id;
  Json echo;  ///< the fields that the response repeats
};

/// The conversation behind a stored response, or none if it is not known.
using FindResponse = std::function<std::optional<std::vector<Message>>(const std::string& id)>;

/// Reads a responses request; errors as parse_chat_call().
ApiResult<ResponsesCall> parse_responses_call(const Json& body, const GenerationConfig& defaults,
                                              const FindResponse& find);

}  // namespace ikv
