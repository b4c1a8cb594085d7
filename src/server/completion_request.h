// /v1/completions: from the client's JSON to the engine's requests.
#pragma once

#include <vector>

#include "server/chat_request.h"

namespace ikv {

/// A completion request, checked: one engine request a choice (prompts x n).
struct CompletionCall {
  std::vector<CompletionRequest> requests;
  ReplyOptions options;
  bool echo = false;  ///< the prompt's text stands before the reply's
};

/// Reads a completion request; errors as parse_chat_call().
ApiResult<CompletionCall> parse_completion_call(const Json& body, const GenerationConfig& defaults);

/// Token ids of a JSON array; notes a fault for anything else.
std::vector<int32_t> read_token_array(const FieldReader& owner, std::string_view name,
                                      const Json& array);

}  // namespace ikv
