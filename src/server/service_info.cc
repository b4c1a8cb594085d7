// Endpoints that tell about the server, and those that work on text.
#include <ctime>
#include <utility>

#include "server/chat_request.h"
#include "server/completion_request.h"
#include "server/service.h"

namespace ikv {

// A step may take long (a chunk of prefill), but not for ever. Judged from call to call: a monitor
// that asks rarely has not seen enough to tell.
bool Service::stalled(const EngineStats& stats) {
  const auto now = std::chrono::steady_clock::now();
  const bool asked_rarely = now - checked_at_ > config_.stall_timeout;
  checked_at_ = now;
  if (stats.running == 0 || stats.steps != seen_steps_ || asked_rarely) {
    seen_steps_ = stats.steps;
    seen_at_ = now;
    return false;
  }
  return now - seen_at_ > config_.stall_timeout;
}

Service::Awaitable Service::health(HttpExchange& exchange) {
  const EngineStats stats = engine_.stats();
  if (stalled(stats)) {
    return send(exchange, error_response({503, "server_error",
                                          "the engine has not finished a step for too long", "",
                                          "stalled", 5}));
  }
  const Json json = {{"status", "ok"}, {"running", stats.running}, {"waiting", stats.waiting}};
  return send(exchange, json_response(exchange.request(), json));
}

Json Service::model_json() const {
  return {{"id", model_name_},
          {"object", "model"},
          {"created", static_cast<int64_t>(std::time(nullptr))},
          {"owned_by", "intentkv"},
          {"max_model_len", model_.session_context_tokens},
          {"meta",
           {{"name", model_.name},
            {"architecture", model_.architecture},
            {"n_params", model_.num_parameters},
            {"n_ctx_train", model_.context_tokens},
            {"n_vocab", model_.vocab_size},
            {"n_layer", model_.num_layers}}}};
}

Service::Awaitable Service::models(HttpExchange& exchange) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const std::string& path = exchange.request().path;
  if (!path.starts_with(kPrefix)) {
    const Json list = {{"object", "list"}, {"data", Json::array({model_json()})}};
    return send(exchange, json_response(exchange.request(), list));
  }
  if (path.substr(kPrefix.size()) == model_name_) {
    return send(exchange, json_response(exchange.request(), model_json()));
  }
  return send(exchange, error_response({404, "invalid_request_error",
                                        "no model '" + path.substr(kPrefix.size(), 200) +
                                            "'; this server has '" + model_name_ + "'",
                                        "model", "model_not_found", 0}));
}

Service::Awaitable Service::props(HttpExchange& exchange) {
  const GenerationConfig& defaults = config_.generation;
  const Json json = {{"default_generation_settings",
                      {{"n_ctx", model_.session_context_tokens},
                       {"params",
                        {{"n_predict", defaults.max_tokens},
                         {"temperature", defaults.temperature},
                         {"top_k", defaults.top_k},
                         {"top_p", defaults.top_p},
                         {"min_p", defaults.min_p},
                         {"repeat_penalty", defaults.repeat_penalty},
                         {"presence_penalty", defaults.presence_penalty},
                         {"frequency_penalty", defaults.frequency_penalty}}}}},
                     {"total_slots", config_.num_slots},
                     {"model_alias", model_name_},
                     {"has_chat_template", model_.has_chat_template},
                     {"modalities", {{"vision", false}, {"audio", false}}}};
  return send(exchange, json_response(exchange.request(), json));
}

// llama-server's slots are fixed; ours are the places in a batch, filled from the first.
Service::Awaitable Service::slots(HttpExchange& exchange) {
  const EngineStats stats = engine_.stats();
  Json list = Json::array();
  for (int i = 0; i < config_.num_slots; ++i) {
    list.push_back({{"id", i},
                    {"n_ctx", model_.session_context_tokens},
                    {"is_processing", i < stats.running}});
  }
  return send(exchange, json_response(exchange.request(), list));
}

Service::Awaitable Service::metrics(HttpExchange& exchange) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = metrics_.text(engine_.stats(), server_.num_connections());
  return send(exchange, std::move(response));
}

Service::Awaitable Service::tokenize(HttpExchange& exchange) {
  return answer_json(exchange, [this](const HttpRequest&, const Json& json) -> ApiResult<Json> {
    RequestFault fault;
    const FieldReader body(json, "", fault);
    std::string content;
    bool add_special = false, parse_special = true, with_pieces = false;
    if (body.find("content") == nullptr) body.fail_missing("content");
    body.read_string("content", content);
    body.read_bool("add_special", add_special);
    body.read_bool("parse_special", parse_special);
    body.read_bool("with_pieces", with_pieces);
    if (fault) return *std::move(fault.error);
    Json tokens = Json::array();
    for (const int32_t token : engine_.tokenize(content, parse_special, add_special)) {
      if (!with_pieces) {
        tokens.push_back(token);
        continue;
      }
      Result<std::string> piece = engine_.detokenize({token});
      tokens.push_back({{"id", token}, {"piece", piece.ok() ? Json(piece.value()) : Json()}});
    }
    return Json{{"tokens", std::move(tokens)}};
  });
}

Service::Awaitable Service::detokenize(HttpExchange& exchange) {
  return answer_json(exchange, [this](const HttpRequest&, const Json& json) -> ApiResult<Json> {
    RequestFault fault;
    const FieldReader body(json, "", fault);
    const Json* array = body.find_array("tokens");
    if (array == nullptr) body.fail_missing("tokens");
    std::vector<int32_t> tokens;
    if (!fault) tokens = read_token_array(body, "tokens", *array);
    if (fault) return *std::move(fault.error);
    Result<std::string> text = engine_.detokenize(tokens);
    if (!text.ok()) return from_engine_error(text.error(), "tokens");
    return Json{{"content", std::move(text).value()}};
  });
}

Service::Awaitable Service::apply_template(HttpExchange& exchange) {
  return answer_json(exchange, [this](const HttpRequest&, const Json& json) -> ApiResult<Json> {
    ApiResult<ChatCall> parsed = parse_chat_call(json, config_.generation);
    if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
    Result<std::string> prompt = engine_.apply_template(std::get<ChatCall>(parsed).request);
    if (!prompt.ok()) return from_engine_error(prompt.error(), "messages");
    return Json{{"prompt", std::move(prompt).value()}};
  });
}

}  // namespace ikv
