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

// The answer to what is no request of an endpoint; none: `route` is to be run.
std::optional<HttpResponse> Service::refuse(const HttpRequest& request, const Route*& route) {
  bool known_path = false;
  route = find_route(request, known_path);
  const bool preflight = request.method == "OPTIONS";
  // Who lacks the key does not learn which URLs there are.
  const bool needs_key = !preflight && (route == nullptr || route->needs_key);
  if (std::optional<ApiError> refused = access_.check(request, needs_key)) {
    return error_response(*refused, route == nullptr ? openai_error_json : route->shape);
  }
  if (preflight) {
    HttpResponse response;
    response.status = 204;
    return response;
  }
  if (route == nullptr) return error_response(no_route(request, known_path));
  return std::nullopt;
}

Service::Awaitable Service::handle(HttpExchange& exchange) {
  exchange.common_headers() = access_.cors_headers(exchange.request());
  const Route* route = nullptr;
  std::optional<HttpResponse> refused = refuse(exchange.request(), route);
  if (refused) {
    co_await exchange.respond(std::move(*refused));
    co_return;
  }
  co_await dispatch(exchange, *route);
}

Service::Awaitable Service::dispatch(HttpExchange& exchange, const Route& route) {
  ApiError failure{500, "server_error", "", "", "internal_error", 0};
  try {
    co_await (this->*route.handler)(exchange);
    co_return;
  } catch (const std::exception& e) {
    // A library's exception that nobody closer to it caught, bad_alloc at most.
    failure.message = std::string("internal error: ") + e.what();
  }
  HttpResponse response = error_response(failure, route.shape);
  co_await exchange.respond(std::move(response));
}

HttpResponse Service::json_response(const HttpRequest& request, const Json& json) {
  HttpResponse response;
  response.body = dump_json(json);
  // By route, not by path: ids in paths would make as many series as clients like.
  bool known_path = false;
  const Route* route = find_route(request, known_path);
  metrics_.count_request(route == nullptr ? "unknown" : route->path, 200);
  return response;
}

HttpResponse Service::error_response(const ApiError& error, ErrorShape shape) {
  HttpResponse response;
  response.status = error.status;
  response.body = dump_json(shape(error));
  if (error.retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  metrics_.count_request("error", error.status);
  return response;
}

Service::Awaitable Service::send(HttpExchange& exchange, HttpResponse response) {
  co_await exchange.respond(std::move(response));
}

Service::Awaitable Service::answer_json(HttpExchange& exchange, Answer answer, ErrorShape shape) {
  auto work = [&request = exchange.request(), answer = std::move(answer)]() -> ApiResult<Json> {
    try {
      ApiResult<Json> body = parse_body(request.body);
      if (auto* error = std::get_if<ApiError>(&body)) return std::move(*error);
      return answer(request, std::get<Json>(body));
    } catch (const std::exception& e) {
      return ApiError{500, "server_error", e.what(), "", "internal_error", 0};
    }
  };
  ApiResult<Json> result = co_await offload(workers_, std::move(work));
  const auto* error = std::get_if<ApiError>(&result);
  HttpResponse response = error != nullptr
                              ? error_response(*error, shape)
                              : json_response(exchange.request(), std::get<Json>(result));
  co_await exchange.respond(std::move(response));
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
