// /v1/messages and /v1/responses: the same chats in other shapes.
#include <utility>

#include "server/messages_reply.h"
#include "server/messages_request.h"
#include "server/responses_reply.h"
#include "server/service.h"

namespace ikv {

ApiResult<PreparedReply> Service::prepare_messages(const HttpRequest& request, const Json& body) {
  ApiResult<std::string> session = session_of(request);
  if (auto* error = std::get_if<ApiError>(&session)) return std::move(*error);
  ApiResult<ChatCall> parsed = parse_messages_call(body, config_.generation);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& call = std::get<ChatCall>(parsed);
  PreparedReply reply;
  reply.stream = call.options.stream;
  reply.prompt_param = "messages";
  reply.format = make_messages_reply(make_identity("msg_", model_name_, config_.write_audit),
                                     call.options, !call.request.tools_json.empty());
  call.request.session_id = std::get<std::string>(session);
  reply.starts.push_back(start_chat(std::move(call.request)));
  return reply;
}

ApiResult<PreparedReply> Service::prepare_responses(const HttpRequest& request, const Json& body) {
  ApiResult<std::string> session = session_of(request);
  if (auto* error = std::get_if<ApiError>(&session)) return std::move(*error);
  ApiResult<ResponsesCall> parsed =
      parse_responses_call(body, config_.generation,
                           [this](const std::string& id) { return responses_store_.find(id); });
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& call = std::get<ResponsesCall>(parsed);
  PreparedReply reply;
  reply.stream = call.options.stream;
  reply.prompt_param = "input";
  const ReplyIdentity identity = make_identity("resp_", model_name_, config_.write_audit);
  KeepReply keep;
  if (call.store) {
    // Instructions hold for one response only, as OpenAI has it.
    auto begin = call.request.messages.begin() + (call.instructions.empty() ? 0 : 1);
    keep = [this, id = identity.id,
            messages = std::vector<Message>(begin, call.request.messages.end())](
               const Message& message) mutable {
      messages.push_back(message);
      responses_store_.put(id, std::move(messages));
    };
  }
  reply.format = make_responses_reply(identity, std::move(call.echo), call.options,
                                      !call.request.tools_json.empty(), std::move(keep));
  call.request.session_id = std::get<std::string>(session);
  reply.starts.push_back(start_chat(std::move(call.request)));
  return reply;
}

PreparedReply::Start Service::start_chat(ChatRequest request) {
  return [this, request = std::move(request)](EventCallback on_event) mutable {
    return engine_.chat(std::move(request), std::move(on_event));
  };
}

Service::Awaitable Service::messages(HttpExchange& exchange) {
  return generate(
      exchange,
      [this](const HttpRequest& request, const Json& body) {
        return prepare_messages(request, body);
      },
      anthropic_error_json);
}

Service::Awaitable Service::responses(HttpExchange& exchange) {
  return generate(
      exchange,
      [this](const HttpRequest& request, const Json& body) {
        return prepare_responses(request, body);
      },
      openai_error_json);
}

Service::Awaitable Service::count_tokens(HttpExchange& exchange) {
  return answer_json(
      exchange,
      [this](const HttpRequest&, const Json& json) -> ApiResult<Json> {
        ApiResult<ChatCall> parsed = parse_messages_call(json, config_.generation, false);
        if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
        Result<std::string> prompt = engine_.apply_template(std::get<ChatCall>(parsed).request);
        if (!prompt.ok()) return from_engine_error(prompt.error(), "messages");
        return Json{{"input_tokens", engine_.tokenize(prompt.value(), true, false).size()}};
      },
      anthropic_error_json);
}

}  // namespace ikv
