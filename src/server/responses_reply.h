// Replies of /v1/responses.
#pragma once

#include <functional>
#include <memory>

#include "server/reply_format.h"
#include "server/responses_request.h"

namespace ikv {

/// Called once with the reply's message, tool calls under the ids that the client got.
using KeepReply = std::function<void(const Message&)>;

/// OpenAI's response object, whole and as its stream of events. `keep` may be empty.
std::unique_ptr<ReplyFormat> make_responses_reply(ReplyIdentity identity, Json echo,
                                                  const ReplyOptions& options, bool with_tools,
                                                  KeepReply keep);

}  // namespace ikv
