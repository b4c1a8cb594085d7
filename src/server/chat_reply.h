// Replies of /v1/chat/completions.
#pragma once

#include <memory>

#include "server/chat_request.h"
#include "server/reply_format.h"

namespace ikv {

/// chat.completion and chat.completion.chunk. `with_tools`: the text may hold tool calls, which are
/// taken out while it streams. `with_logprobs`: they were asked for.
std::unique_ptr<ReplyFormat> make_chat_reply(ReplyIdentity identity, const ReplyOptions& options,
                                             bool with_tools, bool with_logprobs);

}  // namespace ikv
