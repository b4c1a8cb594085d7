// Endpoints that generate: start on a worker, then events to the client as they come.
#include <algorithm>
#include <optional>
#include <utility>

#include "server/chat_reply.h"
#include "server/completion_reply.h"
#include "server/completion_request.h"
#include "server/event_queue.h"
#include "server/offload.h"
#include "server/service.h"

namespace ikv {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// How often a silent reply looks for a client that has gone, and for the server's end.
constexpr milliseconds kPoll{50};
// A reply that fails at once still gets an error status; later the stream has begun.
constexpr milliseconds kHoldHeader{500};

HttpHeaders stream_headers() {
  return {{"Content-Type", "text/event-stream"},
          {"Cache-Control", "no-cache"},
          {"X-Accel-Buffering", "no"}};
}

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

/// What the worker hands back.
struct Service::Job {
  std::optional<ApiError> error;
  std::unique_ptr<ReplyFormat> format;
  bool stream = false;
  std::string prompt_param;
  std::vector<std::shared_ptr<Generation>> generations;
};

/// One request's replies in the making.
struct Service::Progress {
  explicit Progress(std::shared_ptr<EventQueue> events) : queue(std::move(events)) {}
  ~Progress() {
    queue->close();
    for (auto& generation : job.generations) generation->cancel();
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  std::shared_ptr<EventQueue> queue;
  Job job;
  ErrorShape shape = openai_error_json;
  Clock::time_point arrived = Clock::now();
  std::vector<std::optional<Clock::time_point>> last_piece;
  std::vector<GenerationResult> results;
  size_t num_finished = 0;
  std::optional<ApiError> failure;
  std::string frames;  ///< to be sent, when streaming

  bool done() const { return failure || num_finished == job.generations.size(); }
};

ApiResult<PreparedReply> Service::prepare_chat(const HttpRequest& request, const Json& body) {
  ApiResult<std::string> session = session_of(request);
  if (auto* error = std::get_if<ApiError>(&session)) return std::move(*error);
  ApiResult<ChatCall> parsed = parse_chat_call(body, config_.generation);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& call = std::get<ChatCall>(parsed);
  PreparedReply reply;
  reply.stream = call.options.stream;
  reply.prompt_param = "messages";
  reply.format =
      make_chat_reply(make_identity("chatcmpl-", model_name_, config_.write_audit), call.options,
                      !call.request.tools_json.empty(), call.request.generation.num_logprobs >= 0);
  for (int i = 0; i < call.options.num_choices; ++i) {
    ChatRequest copy = call.request;
    // Only one reply can continue the named session; the others find its prefix in the cache.
    if (i == 0) copy.session_id = std::get<std::string>(session);
    if (copy.generation.seed) *copy.generation.seed += static_cast<uint64_t>(i);
    reply.starts.push_back(start_chat(std::move(copy)));
  }
  return reply;
}

ApiResult<PreparedReply> Service::prepare_completion(const HttpRequest&, const Json& body) {
  ApiResult<CompletionCall> parsed = parse_completion_call(body, config_.generation);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  auto& call = std::get<CompletionCall>(parsed);
  PreparedReply reply;
  reply.stream = call.options.stream;
  reply.prompt_param = "prompt";
  const bool logprobs = call.requests.front().generation.num_logprobs >= 0;
  std::vector<std::string> echoes(call.requests.size());
  for (size_t i = 0; call.echo && i < call.requests.size(); ++i) {
    const CompletionRequest& request = call.requests[i];
    if (request.prompt_tokens.empty()) {
      echoes[i] = request.prompt;
      continue;
    }
    Result<std::string> text = engine_.detokenize(request.prompt_tokens);
    if (!text.ok()) return from_engine_error(text.error(), "prompt");
    echoes[i] = std::move(text).value();
  }
  for (CompletionRequest& request : call.requests) {
    reply.starts.emplace_back([this, request = std::move(request)](EventCallback on_event) mutable {
      return engine_.complete(std::move(request), std::move(on_event));
    });
  }
  reply.format = make_completion_reply(make_identity("cmpl-", model_name_), call.options,
                                       std::move(echoes), logprobs);
  return reply;
}

Service::Awaitable Service::chat(HttpExchange& exchange) {
  return generate(
      exchange,
      [this](const HttpRequest& request, const Json& body) { return prepare_chat(request, body); },
      openai_error_json);
}

Service::Awaitable Service::complete(HttpExchange& exchange) {
  return generate(
      exchange,
      [this](const HttpRequest& request, const Json& body) {
        return prepare_completion(request, body);
      },
      openai_error_json);
}

// On a worker: parse, check, render, tokenise and queue.
Service::Job Service::start_job(const HttpRequest& request, const Prepare& prepare,
                                const std::shared_ptr<EventQueue>& queue) {
  Job job;
  try {
    ApiResult<Json> body = parse_body(request.body);
    if (auto* error = std::get_if<ApiError>(&body)) {
      job.error = std::move(*error);
      return job;
    }
    ApiResult<PreparedReply> prepared = prepare(request, std::get<Json>(body));
    body = Json();  // what the engine needs was copied
    if (auto* error = std::get_if<ApiError>(&prepared)) {
      job.error = std::move(*error);
      return job;
    }
    auto& reply = std::get<PreparedReply>(prepared);
    job.format = std::move(reply.format);
    job.stream = reply.stream;
    job.prompt_param = std::move(reply.prompt_param);
    for (size_t i = 0; i < reply.starts.size() && !job.error; ++i) {
      auto started =
          reply.starts[i]([queue, i](const GenerationEvent& event) { queue->push(i, event); });
      if (started.ok()) {
        job.generations.push_back(std::move(started).value());
      } else {
        job.error = from_engine_error(started.error(), job.prompt_param);
      }
    }
  } catch (const std::exception& e) {
    job.error = ApiError{500, "server_error", e.what(), "", "internal_error", 0};
  }
  return job;
}

Service::Awaitable Service::generate(HttpExchange& exchange, Prepare prepare, ErrorShape shape) {
  const auto io = co_await boost::asio::this_coro::executor;
  Progress progress(std::make_shared<EventQueue>(io));
  progress.shape = shape;
  auto work = [&request = exchange.request(), queue = progress.queue,
               prepare = std::move(prepare)] { return start_job(request, prepare, queue); };
  progress.job = co_await offload(workers_, std::move(work));
  if (progress.job.error) {
    HttpResponse response = error_response(*progress.job.error, shape);
    co_await exchange.respond(std::move(response));
    co_return;
  }
  exchange.request().body = {};
  progress.last_piece.resize(progress.job.generations.size());
  progress.results.resize(progress.job.generations.size());
  if (progress.job.stream) {
    co_await answer_stream(exchange, progress);
  } else {
    co_await answer_whole(exchange, progress);
  }
}

void Service::take_events(Progress& progress) {
  if (server_.aborting() && !progress.failure) {
    progress.failure =
        ApiError{503, "server_error", "the server is shutting down", "", "shutting_down", 5};
  }
  std::deque<ChoiceEvent> events = progress.queue->take();
  for (ChoiceEvent& item : events) {
    std::optional<Clock::time_point>& last = progress.last_piece[item.choice];
    if (!item.event.text.empty() || !item.event.tokens.empty()) {
      if (last) {
        metrics_.observe_inter_token(seconds_between(*last, item.at));
      } else {
        metrics_.observe_first_token(seconds_between(progress.arrived, item.at));
      }
      last = item.at;
      if (progress.job.stream) {
        progress.frames += progress.job.format->stream_event(item.choice, item.event);
      }
    }
    if (!item.event.finished) continue;
    Result<GenerationResult> result = progress.job.generations[item.choice]->wait();
    if (!result.ok()) {
      progress.failure = from_engine_error(result.error(), progress.job.prompt_param);
      break;
    }
    metrics_.observe_reply(result->usage, seconds_between(progress.arrived, Clock::now()));
    ++progress.num_finished;
    progress.results[item.choice] = std::move(result).value();
    if (progress.job.stream) {
      progress.frames +=
          progress.job.format->stream_end(item.choice, progress.results[item.choice]);
    }
  }
}

// Takes what has come; false if nobody listens any more.
boost::asio::awaitable<bool> Service::collect(HttpExchange& exchange, Progress& progress) {
  co_await progress.queue->wait(kPoll);
  if (exchange.client_gone()) {
    metrics_.count_cancelled();
    co_return false;
  }
  take_events(progress);
  co_return true;
}

HttpResponse Service::whole_response(const HttpRequest& request, Progress& progress) {
  if (progress.failure) return error_response(*progress.failure, progress.shape);
  HttpResponse response = json_response(request, progress.job.format->whole(progress.results));
  const GenerationResult& first = progress.results.front();
  response.headers.emplace_back("X-IntentKV-Pruned", std::to_string(first.usage.kv.pruned_tokens));
  if (valid_session_id(first.session_id)) {
    response.headers.emplace_back("X-Session-ID", first.session_id);
  }
  return response;
}

Service::Awaitable Service::answer_whole(HttpExchange& exchange, Progress& progress) {
  while (!progress.done()) {
    const bool listening = co_await collect(exchange, progress);
    if (!listening) co_return;
  }
  HttpResponse response = whole_response(exchange.request(), progress);
  co_await exchange.respond(std::move(response));
}

Service::Awaitable Service::answer_stream(HttpExchange& exchange, Progress& progress) {
  ReplyFormat& format = *progress.job.format;
  bool begun = false;
  Clock::time_point last_sent = Clock::now();
  while (!progress.done()) {
    bool listening = co_await collect(exchange, progress);
    if (!listening) co_return;
    if (progress.failure && !begun) {
      HttpResponse response = error_response(*progress.failure, progress.shape);
      co_await exchange.respond(std::move(response));
      co_return;
    }
    const Clock::time_point now = Clock::now();
    if (!begun) {
      if (progress.frames.empty() && now - last_sent < kHoldHeader) continue;
      begun = true;
      metrics_.count_request(exchange.request().path, 200);
      progress.frames.insert(0, format.begin_stream());
      HttpHeaders headers = stream_headers();
      listening = co_await exchange.start_stream(std::move(headers));
      if (!listening) co_return;
    }
    if (progress.failure) progress.frames += format.stream_error(*progress.failure);
    if (progress.frames.empty() && now - last_sent >= config_.heartbeat) {
      progress.frames = ": keep-alive\n\n";
    }
    if (progress.done() && !progress.failure) {
      progress.frames += format.finish_stream(progress.results);
    }
    if (progress.frames.empty()) continue;
    last_sent = now;
    std::string frames = std::exchange(progress.frames, std::string());
    listening = co_await exchange.write_stream(std::move(frames));
    if (!listening) {
      metrics_.count_cancelled();
      co_return;
    }
  }
  co_await exchange.finish_stream();
}

}  // namespace ikv
