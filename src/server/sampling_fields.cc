// The fields of a request that every endpoint shares.
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "server/chat_request.h"

namespace ikv {
namespace {

constexpr size_t kMaxIntentBytes = 64u << 10;
constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

void read_stop(const FieldReader& body, GenerationConfig& config) {
  const Json* stop = body.find("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) {
    config.stop = {stop->get<std::string>()};
    return;
  }
  if (!stop->is_array()) return body.fail_type("stop", "a string or an array of strings", *stop);
  config.stop.clear();
  for (size_t i = 0; i < stop->size(); ++i) {
    const Json& text = (*stop)[i];
    if (!text.is_string()) {
      return body.fail_type("stop[" + std::to_string(i) + "]", "a string", text);
    }
    config.stop.push_back(text.get<std::string>());
  }
}

void read_seed(const FieldReader& body, GenerationConfig& config) {
  if (body.find("seed") == nullptr) return;
  int64_t seed = -1;
  body.read_int("seed", seed, std::numeric_limits<int64_t>::min(),
                std::numeric_limits<int64_t>::max());
  // -1 is llama.cpp's "random".
  if (seed != -1) config.seed = static_cast<uint64_t>(seed);
}

void read_logit_bias(const FieldReader& body, GenerationConfig& config) {
  const Json* biases = body.find_object("logit_bias");
  if (biases == nullptr) return;
  for (const auto& [key, value] : biases->items()) {
    const std::string name = "logit_bias." + key.substr(0, 32);
    if (key.empty() || key.size() > 9 || key.find_first_not_of("0123456789") != std::string::npos) {
      return body.fail(name, "invalid_value", "a key of 'logit_bias' must be a token id");
    }
    if (!value.is_number()) return body.fail_type(name, "a number", value);
    const auto bias = value.get<double>();
    if (!(bias >= -100 && bias <= 100)) {
      return body.fail(name, "invalid_value", "'" + name + "' must be between -100 and 100");
    }
    // OpenAI's -100 means: never.
    config.logit_bias[std::stoi(key)] =
        bias <= -100 ? -std::numeric_limits<float>::infinity() : static_cast<float>(bias);
  }
}

void read_slots(const FieldReader& intent, StatedIntent& stated) {
  const Json* slots = intent.find_object("slots");
  if (slots == nullptr) return;
  for (const auto& [name, value] : slots->items()) {
    stated.slots.emplace_back(name, arguments_text(value));
  }
}

// A text, or {text, name, slots, plan_step}.
void read_intent(const FieldReader& fields, StatedIntent& stated) {
  fields.read_string("plan_step", stated.plan_step, kMaxIntentBytes);
  const Json* intent = fields.find("intent");
  if (intent == nullptr) return;
  if (intent->is_string()) return fields.read_string("intent", stated.text, kMaxIntentBytes);
  if (!intent->is_object()) return fields.fail_type("intent", "a string or an object", *intent);
  const FieldReader parts(*intent, fields.path_of("intent"), fields.fault());
  parts.read_string("text", stated.text, kMaxIntentBytes);
  parts.read_string("name", stated.name, kMaxIntentBytes);
  parts.read_string("plan_step", stated.plan_step, kMaxIntentBytes);
  read_slots(parts, stated);
}

void read_pins(const FieldReader& fields, size_t num_messages, std::vector<int32_t>& pins) {
  const Json* list = fields.find_array("pin");
  if (list == nullptr) return;
  for (size_t i = 0; i < list->size(); ++i) {
    const std::optional<int64_t> index = whole_number((*list)[i]);
    if (!index || *index < 0 || *index >= static_cast<int64_t>(num_messages)) {
      return fields.fail("pin[" + std::to_string(i) + "]", "invalid_value",
                         "'intentkv.pin' must hold indices of this request's " +
                             std::to_string(num_messages) + " messages");
    }
    pins.push_back(static_cast<int32_t>(*index));
  }
}

}  // namespace

void read_policy_fields(const FieldReader& body, ChatRequest& request) {
  const Json* object = body.find_object("intentkv");
  if (object == nullptr) return;
  const FieldReader fields(*object, "intentkv", body.fault());
  read_intent(fields, request.intent);
  read_pins(fields, request.messages.size(), request.pins);
  fields.read_bool("explain", request.audit);
  std::string truncate = "error";
  fields.read_string("truncate", truncate);
  if (truncate != "error") {
    fields.fail("truncate", "unsupported_value",
                "'intentkv.truncate' supports only \"error\" in this version");
  }
  // Ignoring these would be silent: the client would believe that they took effect.
  for (const char* name : {"unpin", "attend", "resident", "policy", "approximate_reuse"}) {
    if (fields.find(name) == nullptr) continue;
    fields.fail(name, "unsupported_parameter",
                "'intentkv." + std::string(name) + "' is not supported in this version; the " +
                    "policy is set for the whole server with --kv-policy and its budgets");
  }
}

void read_sampling(const FieldReader& body, GenerationConfig& config) {
  body.read_int("max_tokens", config.max_tokens, -1, kMaxInt);
  body.read_int("max_completion_tokens", config.max_tokens, -1, kMaxInt);
  body.read_float("temperature", config.temperature, 0, 100);
  body.read_int("top_k", config.top_k, -1, kMaxInt);
  body.read_float("top_p", config.top_p, 0, 1);
  body.read_float("min_p", config.min_p, 0, 1);
  body.read_float("repetition_penalty", config.repeat_penalty, 0.01, 100);
  body.read_float("repeat_penalty", config.repeat_penalty, 0.01, 100);
  body.read_int("repeat_last_n", config.repeat_last_n, -1, kMaxInt);
  body.read_float("presence_penalty", config.presence_penalty, -2, 2);
  body.read_float("frequency_penalty", config.frequency_penalty, -2, 2);
  body.read_bool("ignore_eos", config.ignore_eos);
  read_seed(body, config);
  read_stop(body, config);
  read_logit_bias(body, config);
}

void read_reply_options(const FieldReader& body, ReplyOptions& options) {
  body.read_bool("stream", options.stream);
  body.read_int("n", options.num_choices, 1, kMaxChoices);
  if (const Json* stream = body.find_object("stream_options")) {
    FieldReader(*stream, "stream_options", body.fault())
        .read_bool("include_usage", options.include_usage);
  }
  body.read_bool("parallel_tool_calls", options.parallel_tool_calls);
}

}  // namespace ikv
