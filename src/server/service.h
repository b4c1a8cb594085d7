// What the server's endpoints do: from HTTP requests to the engine and back.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "intentkv/engine.h"
#include "server/access.h"
#include "server/http_server.h"
#include "server/json_input.h"
#include "server/metrics.h"
#include "server/reply_format.h"
#include "server/response_store.h"
#include "server/server_config.h"

namespace ikv {

class EventQueue;

/// A request for generations, ready to start.
struct PreparedReply {
  using Start = std::function<Result<std::shared_ptr<Generation>>(EventCallback)>;
  std::vector<Start> starts;
  std::unique_ptr<ReplyFormat> format;
  bool stream = false;
  std::string prompt_param;  ///< the field that a context overflow is about
};

/// How an endpoint writes its errors.
using ErrorShape = Json (*)(const ApiError&);

/// Answers requests. Handlers run on the server's I/O thread; whatever takes long goes to a pool of
/// workers. The engine must outlive the service, the service the server's run().
class Service {
 public:
  Service(Engine& engine, const ServerConfig& config, const HttpServer& server);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  /// The handler for HttpServer::run().
  boost::asio::awaitable<void> handle(HttpExchange& exchange);

 private:
  using Awaitable = boost::asio::awaitable<void>;
  using Prepare = std::function<ApiResult<PreparedReply>(const HttpRequest&, const Json&)>;
  using Answer = std::function<ApiResult<Json>(const HttpRequest&, const Json&)>;
  struct Route;
  struct Job;
  struct Progress;

  static const std::vector<Route>& routes();
  std::optional<HttpResponse> refuse(const HttpRequest& request, const Route*& route);
  const Route* find_route(const HttpRequest& request, bool& known_path) const;
  Awaitable dispatch(HttpExchange& exchange, const Route& route);

  // Generations.
  Awaitable chat(HttpExchange& exchange);
  Awaitable complete(HttpExchange& exchange);
  Awaitable messages(HttpExchange& exchange);
  Awaitable responses(HttpExchange& exchange);
  ApiResult<PreparedReply> prepare_chat(const HttpRequest& request, const Json& body);
  ApiResult<PreparedReply> prepare_completion(const HttpRequest& request, const Json& body);
  ApiResult<PreparedReply> prepare_messages(const HttpRequest& request, const Json& body);
  ApiResult<PreparedReply> prepare_responses(const HttpRequest& request, const Json& body);
  PreparedReply::Start start_chat(ChatRequest request);
  static Job start_job(const HttpRequest& request, const Prepare& prepare,
                       const std::shared_ptr<EventQueue>& queue);
  Awaitable generate(HttpExchange& exchange, Prepare prepare, ErrorShape shape);
  Awaitable answer_whole(HttpExchange& exchange, Progress& progress);
  Awaitable answer_stream(HttpExchange& exchange, Progress& progress);
  boost::asio::awaitable<bool> collect(HttpExchange& exchange, Progress& progress);
  void take_events(Progress& progress);
  HttpResponse whole_response(const HttpRequest& request, Progress& progress);

  // Everything else.
  Awaitable health(HttpExchange& exchange);
  Awaitable models(HttpExchange& exchange);
  Awaitable props(HttpExchange& exchange);
  Awaitable slots(HttpExchange& exchange);
  Awaitable metrics(HttpExchange& exchange);
  Awaitable tokenize(HttpExchange& exchange);
  Awaitable detokenize(HttpExchange& exchange);
  Awaitable apply_template(HttpExchange& exchange);
  Awaitable count_tokens(HttpExchange& exchange);
  Awaitable list_sessions(HttpExchange& exchange);
  Awaitable session(HttpExchange& exchange);
  Json model_json() const;
  bool stalled(const EngineStats& stats);

  /// Parses the body on a worker, lets `answer` work there too, and sends what comes out.
  Awaitable answer_json(HttpExchange& exchange, Answer answer,
                        ErrorShape shape = openai_error_json);
  // g++ 12 destroys some temporaries of a co_await expression twice (aggregates, initialiser
  // lists). So responses are made by plain functions and handed over as named variables.
  HttpResponse json_response(const HttpRequest& request, const Json& json);
  HttpResponse error_response(const ApiError& error, ErrorShape shape = openai_error_json);
  static Awaitable send(HttpExchange& exchange, HttpResponse response);

  Engine& engine_;
  const ServerConfig config_;
  const HttpServer& server_;
  const AccessRules access_;
  const ModelInfo model_;
  const std::string model_name_;
  Metrics metrics_;
  ResponseStore responses_store_{64u << 20};
  boost::asio::thread_pool workers_;
  // For /health: when the engine was last seen to finish a step.
  uint64_t seen_steps_ = 0;
  std::chrono::steady_clock::time_point seen_at_;
  std::chrono::steady_clock::time_point checked_at_;
};

/// The session that the client names by header, checked; empty if it names none.
ApiResult<std::string> session_of(const HttpRequest& request);
/// A session id as clients may choose them: visible ASCII, at most 256 bytes.
bool valid_session_id(std::string_view id);

}  // namespace ikv
