// /v1/messages: Anthropic's shape of a chat, from JSON to the engine's request.
#pragma once

#include "server/chat_request.h"

namespace ikv {

/// Reads a messages request; errors as parse_chat_call(). `needs_limit`: max_tokens is required, as
/// it is for a reply (and not for counting tokens).
ApiResult<ChatCall> parse_messages_call(const Json& body, const GenerationConfig& defaults,
                                        bool needs_limit = true);

}  // namespace ikv
