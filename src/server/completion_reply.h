// Replies of /v1/completions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/chat_request.h"
#include "server/reply_format.h"

namespace ikv {

/// text_completion, whole and streamed. `echoes`: text before each choice's, empty without echo.
std::unique_ptr<ReplyFormat> make_completion_reply(ReplyIdentity identity,
                                                   const ReplyOptions& options,
                                                   std::vector<std::string> echoes,
                                                   bool with_logprobs);

}  // namespace ikv
