// The fields of a request that every endpoint shares.
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "server/chat_request.h"

namespace ikv {
namespace {

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

void read_policy_fields(const FieldReader& body, ReplyOptions& options) {
  const Json* object = body.find_object("intentkv");
  if (object == nullptr) return;
  const FieldReader fields(*object, "intentkv", body.fault());
  fields.read_bool("explain", options.explain);
  std::string truncate = "error";
  fields.read_string("truncate", truncate);
  if (truncate != "error") {
    fields.fail("truncate", "unsupported_value",
                "'intentkv.truncate' supports only \"error\" in this version");
  }
  // Ignoring these would be silent: the client would believe that they took effect.
  for (const char* name : {"intent", "plan_step", "pin", "unpin", "attend", "resident", "policy"}) {
    if (fields.find(name) == nullptr) continue;
    fields.fail(name, "unsupported_parameter",
                "'intentkv." + std::string(name) + "' is not supported in this version; the " +
                    "policy is set for the whole server with --kv-policy and its budgets");
  }
}

}  // namespace

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
  read_policy_fields(body, options);
}

}  // namespace ikv
