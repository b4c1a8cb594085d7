// Replies of /v1/messages.
#pragma once

#include <memory>

#include "server/chat_request.h"
#include "server/reply_format.h"

namespace ikv {

/// Anthropic's message, whole and as its stream of events.
std::unique_ptr<ReplyFormat> make_messages_reply(ReplyIdentity identity,
                                                 const ReplyOptions& options, bool with_tools);

/// "end_turn", "max_tokens", "tool_use".
std::string anthropic_stop_reason(FinishReason reason);

}  // namespace ikv
