#include "server/service.h"

#include <utility>

#include "server/offload.h"

namespace ikv {
namespace {

std::string name_of(const ServerConfig& config, const ModelInfo& model) {
  if (!config.model_alias.empty()) return config.model_alias;
  return model.name.empty() ? "intentkv" : model.name;
}

ApiError no_route(const HttpRequest& request, bool known_path) {
  ApiError error;
  error.status = known_path ? 405 : 404;
  error.code = known_path ? "method_not_allowed" : "unknown_url";
  error.message = (known_path ? "this URL does not take " : "unknown URL: ") +
                  request.method.substr(0, 16) + " " + request.path.substr(0, 200);
  return error;
}

}  // namespace

struct Service::Route {
  const char* method;
  const char* path;
  bool prefix;  ///< longer paths match too
  bool needs_key;
  Awaitable (Service::*handler)(HttpExchange&);
  ErrorShape shape = openai_error_json;
};

const std::vector<Service::Route>& Service::routes() {
  static const std::vector<Route> kRoutes = {
      {"GET", "/health", false, false, &Service::health},
      {"GET", "/v1/health", false, false, &Service::health},
      {"GET", "/metrics", false, true, &Service::metrics},
      {"GET", "/v1/models", false, true, &Service::models},
      {"GET", "/models", false, true, &Service::models},
      {"GET", "/v1/models/", true, true, &Service::models},
      {"POST", "/v1/chat/completions", false, true, &Service::chat},
      {"POST", "/chat/completions", false, true, &Service::chat},
      {"POST", "/v1/completions", false, true, &Service::complete},
      {"POST", "/completions", false, true, &Service::complete},
      {"POST", "/v1/messages", false, true, &Service::messages, anthropic_error_json},
      {"POST", "/v1/messages/count_tokens", false, true, &Service::count_tokens,
       anthropic_error_json},
      {"POST", "/v1/responses", false, true, &Service::responses},
      {"POST", "/tokenize", false, true, &Service::tokenize},
      {"POST", "/detokenize", false, true, &Service::detokenize},
      {"POST", "/apply-template", false, true, &Service::apply_template},
      {"GET", "/props", false, true, &Service::props},
      {"GET", "/slots", false, true, &Service::slots},
      {"GET", "/v1/sessions", false, true, &Service::list_sessions},
      {"GET", "/v1/sessions/", true, true, &Service::session},
      {"POST", "/v1/sessions/", true, true, &Service::session},
      {"DELETE", "/v1/sessions/", true, true, &Service::session},
  };
  return kRoutes;
}

Service::Service(Engine& engine, const ServerConfig& config, const HttpServer& server)
    : engine_(engine),
      config_(config),
      server_(server),
      access_(config.api_keys, config.cors_origins),
      model_(engine.model_info()),
      model_name_(name_of(config, model_)),
      workers_(static_cast<size_t>(config.worker_threads)),
      seen_at_(std::chrono::steady_clock::now()) {}

Service::~Service() {
  workers_.join();
}

const Service::Route* Service::find_route(const HttpRequest& request, bool& known_path) const {
  for (const Route& route : routes()) {
    const bool matches = route.prefix
                             ? request.path.starts_with(route.path) && request.path != route.path
                             : request.path == route.path;
    if (!matches) continue;
    known_path = true;
    if (request.method == route.method ||
        (request.method == "HEAD" && std::string_view(route.method) == "GET")) {
      return &route;
    }
  }
  return nullptr;
}

Service::Awaitable Service::handle(HttpExchange& exchange) {
  const HttpRequest& request = exchange.request();
  exchange.common_headers() = access_.cors_headers(request);
  bool known_path = false;
  const Route* route = find_route(request, known_path);
  if (request.method == "OPTIONS") {
    if (std::optional<ApiError> refused = access_.check(request, false)) {
      co_return co_await send_error(exchange, *refused);
    }
    HttpResponse response;
    response.status = 204;
    co_await exchange.respond(std::move(response));
    co_return;
  }
  // Who lacks the key does not learn which URLs there are.
  if (std::optional<ApiError> refused =
          access_.check(request, route == nullptr || route->needs_key)) {
    co_return co_await send_error(exchange, *refused,
                                  route == nullptr ? openai_error_json : route->shape);
  }
  if (route == nullptr) co_return co_await send_error(exchange, no_route(request, known_path));
  co_await dispatch(exchange, *route);
}

Service::Awaitable Service::dispatch(HttpExchange& exchange, const Route& route) {
  std::string failure;
  try {
    co_await (this->*route.handler)(exchange);
    co_return;
  } catch (const std::exception& e) {
    failure = e.what();
  }
  // A library's exception that nobody closer to it caught, bad_alloc at most.
  co_await send_error(
      exchange,
      ApiError{500, "server_error", "internal error: " + failure, "", "internal_error", 0},
      route.shape);
}

Service::Awaitable Service::send_json(HttpExchange& exchange, const Json& json,
                                      HttpHeaders headers) {
  HttpResponse response;
  response.body = dump_json(json);
  response.headers = std::move(headers);
  // By route, not by path: ids in paths would make as many series as clients like.
  bool known_path = false;
  const Route* route = find_route(exchange.request(), known_path);
  metrics_.count_request(route == nullptr ? "unknown" : route->path, 200);
  co_await exchange.respond(std::move(response));
}

Service::Awaitable Service::send_error(HttpExchange& exchange, const ApiError& error,
                                       ErrorShape shape) {
  HttpResponse response;
  response.status = error.status;
  response.body = dump_json(shape(error));
  if (error.retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  metrics_.count_request("error", error.status);
  co_await exchange.respond(std::move(response));
}

Service::Awaitable Service::answer_json(HttpExchange& exchange, Answer answer, ErrorShape shape) {
  ApiResult<Json> result = co_await offload(
      workers_, [&request = exchange.request(), answer = std::move(answer)]() -> ApiResult<Json> {
        try {
          ApiResult<Json> body = parse_body(request.body);
          if (auto* error = std::get_if<ApiError>(&body)) return *std::move(error);
          return answer(request, std::get<Json>(body));
        } catch (const std::exception& e) {
          return ApiError{500, "server_error", e.what(), "", "internal_error", 0};
        }
      });
  if (const auto* error = std::get_if<ApiError>(&result)) {
    co_return co_await send_error(exchange, *error, shape);
  }
  co_await send_json(exchange, std::get<Json>(result));
}

bool valid_session_id(std::string_view id) {
  if (id.empty() || id.size() > 256) return false;
  for (const char c : id) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

ApiResult<std::string> session_of(const HttpRequest& request) {
  const std::string_view id = request.header("x-session-id");
  if (id.empty() || valid_session_id(id)) return std::string(id);
  return bad_field("X-Session-ID", "invalid_value",
                   "the header X-Session-ID must be 1 to 256 visible ASCII characters");
}

}  // namespace ikv
