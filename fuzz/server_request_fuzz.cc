// Request bodies of every endpoint: whatever a client sends is a request or a refusal.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/check.h"
#include "server/completion_request.h"
#include "server/messages_request.h"
#include "server/responses_request.h"

namespace {

// A refusal must say something, and writing it must not fail.
template <typename Call>
void expect_call_or_refusal(const ikv::ApiResult<Call>& result) {
  const auto* error = std::get_if<ikv::ApiError>(&result);
  if (error == nullptr) return;
  IKV_CHECK(error->status >= 400 && error->status < 500);
  IKV_CHECK(!error->message.empty());
  IKV_CHECK(!ikv::dump_json(ikv::openai_error_json(*error)).empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ikv::ApiResult<ikv::Json> body = ikv::parse_body(text);
  const auto* json = std::get_if<ikv::Json>(&body);
  if (json == nullptr) return 0;
  expect_call_or_refusal(ikv::parse_chat_call(*json, {}));
  expect_call_or_refusal(ikv::parse_completion_call(*json, {}));
  expect_call_or_refusal(ikv::parse_messages_call(*json, {}));
  expect_call_or_refusal(ikv::parse_responses_call(
      *json, {}, [](const std::string&) -> std::optional<std::vector<ikv::Message>> {
        return std::vector<ikv::Message>(1);
      }));
  return 0;
}
