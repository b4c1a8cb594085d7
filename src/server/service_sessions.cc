// /v1/sessions: what the engine remembers.
#include <algorithm>
#include <utility>

#include "server/offload.h"
#include "server/service.h"

namespace ikv {
namespace {

Json session_json(const SessionInfo& info) {
  return {{"id", info.id},
          {"object", "session"},
          {"num_tokens", info.num_tokens},
          {"num_cached_tokens", info.num_cached_tokens},
          {"num_messages", info.num_messages},
          {"busy", info.busy}};
}

ApiError bad_session_id(const char* param) {
  return bad_field(param, "invalid_value",
                   "a session id must be 1 to 256 visible ASCII characters");
}

ApiError unknown_session(const std::string& id) {
  return {404, "invalid_request_error", "no session '" + id + "'", "id", "not_found", 0};
}

ApiResult<Json> fork_session(Engine& engine, const std::string& id, const std::string& text) {
  std::string new_id = make_id("session-");
  if (!text.empty()) {
    ApiResult<Json> body = parse_body(text);
    if (auto* error = std::get_if<ApiError>(&body)) return std::move(*error);
    RequestFault fault;
    FieldReader(std::get<Json>(body), "", fault).read_string("new_id", new_id);
    if (fault) return *std::move(fault.error);
  }
  if (!valid_session_id(new_id)) return bad_session_id("new_id");
  const Status status = engine.fork_session(id, new_id);
  if (!status.ok()) return from_engine_error(status.error(), "id");
  return Json{{"id", new_id}, {"object", "session"}, {"forked_from", id}};
}

ApiResult<Json> show_session(Engine& engine, const std::string& id) {
  for (const SessionInfo& info : engine.sessions()) {
    if (info.id == id) return session_json(info);
  }
  return unknown_session(id);
}

ApiResult<Json> close_session(Engine& engine, const std::string& id) {
  const Status status = engine.close_session(id);
  if (!status.ok()) return from_engine_error(status.error(), "id");
  return Json{{"id", id}, {"object", "session"}, {"deleted", true}};
}

ApiError no_action(const std::string& method) {
  return {
      405,
      "invalid_request_error",
      "sessions take GET and DELETE /v1/sessions/ID and POST /v1/sessions/ID/fork; got " + method,
      "",
      "method_not_allowed",
      0};
}

ApiResult<Json> session_action(Engine& engine, const HttpRequest& request) {
  std::string id = request.path.substr(std::string_view("/v1/sessions/").size());
  constexpr std::string_view kFork = "/fork";
  const bool fork = request.method == "POST" && id.ends_with(kFork);
  if (fork) id.resize(id.size() - kFork.size());
  if (!valid_session_id(id)) return bad_session_id("id");
  if (fork) return fork_session(engine, id, request.body);
  if (request.method == "DELETE") return close_session(engine, id);
  if (request.method == "POST") return no_action(request.method);
  return show_session(engine, id);
}

}  // namespace

Service::Awaitable Service::list_sessions(HttpExchange& exchange) {
  // The engine answers between two steps: not something to wait for here.
  auto work = [this] {
    Json data = Json::array();
    for (const SessionInfo& info : engine_.sessions()) data.push_back(session_json(info));
    return Json{{"object", "list"}, {"data", std::move(data)}};
  };
  const Json list = co_await offload(workers_, std::move(work));
  HttpResponse response = json_response(exchange.request(), list);
  co_await exchange.respond(std::move(response));
}

Service::Awaitable Service::session(HttpExchange& exchange) {
  auto work = [this, &request = exchange.request()] { return session_action(engine_, request); };
  ApiResult<Json> result = co_await offload(workers_, std::move(work));
  const auto* error = std::get_if<ApiError>(&result);
  HttpResponse response = error != nullptr
                              ? error_response(*error)
                              : json_response(exchange.request(), std::get<Json>(result));
  co_await exchange.respond(std::move(response));
}

}  // namespace ikv
