#include "result_json.h"

#include <optional>
#include <utility>

#include "file_io.h"

namespace ikv {
namespace {

using Json = nlohmann::ordered_json;

double per_second(int32_t count, int64_t microseconds) {
  return microseconds > 0 ? count * 1e6 / static_cast<double>(microseconds) : 0.0;
}

// A token's bytes need not be valid UTF-8, so they are given as numbers too, as OpenAI's API does.
Json logprob_to_json(const TokenLogprob& token) {
  Json bytes = Json::array();
  for (char c : token.bytes) bytes.push_back(static_cast<unsigned char>(c));
  return {
      {"id", token.token}, {"token", token.bytes}, {"bytes", bytes}, {"logprob", token.logprob}};
}

Error bad_message(size_t index, const std::string& what) {
  return invalid_argument("messages[" + std::to_string(index) + "]" + what);
}

std::optional<Role> role_from(const std::string& name) {
  for (Role role : {Role::kSystem, Role::kUser, Role::kAssistant, Role::kTool}) {
    if (name == role_name(role)) return role;
  }
  return std::nullopt;
}

// A tool call as OpenAI nests it ({id, function: {name, arguments}}) or flat ({id, name,
// arguments}).
Result<ToolCall> parse_tool_call(size_t index, const Json& json) {
  const Json& function = json.contains("function") ? json.at("function") : json;
  if (!function.is_object() || !function.contains("name") || !function.at("name").is_string()) {
    return bad_message(index, ".tool_calls: each needs a function name");
  }
  ToolCall call;
  call.name = function.at("name").get<std::string>();
  if (json.contains("id") && json.at("id").is_string()) call.id = json.at("id").get<std::string>();
  Json arguments = function.value("arguments", Json::object());
  call.arguments_json = arguments.is_string() ? arguments.get<std::string>() : arguments.dump();
  return call;
}

Result<Message> parse_message(size_t index, const Json& json) {
  if (!json.is_object()) return bad_message(index, ": must be an object");
  Message message;
  std::optional<Role> role;
  if (json.contains("role") && json.at("role").is_string()) {
    role = role_from(json.at("role").get<std::string>());
  }
  if (!role) return bad_message(index, ".role: must be system, user, assistant or tool");
  message.role = *role;
  for (auto [key, target] :
       {std::pair{"name", &message.name}, std::pair{"tool_call_id", &message.tool_call_id}}) {
    if (!json.contains(key) || json.at(key).is_null()) continue;
    if (!json.at(key).is_string())
      return bad_message(index, "." + std::string(key) + ": must be text");
    *target = json.at(key).get<std::string>();
  }
  if (json.contains("content") && !json.at("content").is_null()) {
    if (!json.at("content").is_string())
      return bad_message(index, ".content: must be text or null");
    message.content = json.at("content").get<std::string>();
  }
  if (json.contains("tool_calls") && !json.at("tool_calls").is_null()) {
    if (!json.at("tool_calls").is_array())
      return bad_message(index, ".tool_calls: must be an array");
    for (const Json& call : json.at("tool_calls")) {
      Result<ToolCall> parsed = parse_tool_call(index, call);
      if (!parsed.ok()) return parsed.error();
      message.tool_calls.push_back(std::move(parsed).value());
    }
  }
  return message;
}

Result<Conversation> parse_conversation(const Json& json) {
  const bool whole = json.is_object() && json.contains("messages");
  const Json& messages = whole ? json.at("messages") : json;
  if (!messages.is_array()) return invalid_argument("needs an array of messages");
  Conversation conversation;
  for (size_t i = 0; i < messages.size(); ++i) {
    Result<Message> message = parse_message(i, messages[i]);
    if (!message.ok()) return message.error();
    conversation.messages.push_back(std::move(message).value());
  }
  if (whole && json.contains("tools") && !json.at("tools").is_null()) {
    if (!json.at("tools").is_array()) return invalid_argument("tools: must be an array");
    conversation.tools_json = json.at("tools").dump();
  }
  return conversation;
}

}  // namespace

Json generation_to_json(const GenerationResult& result) {
  Json tokens = Json::array();
  for (const SampledToken& token : result.tokens) tokens.push_back(token.chosen.token);
  const Usage& usage = result.usage;
  Json json = {
      {"text", result.text},
      {"tokens", tokens},
      {"finish_reason", finish_reason_name(result.finish_reason)},
      {"usage",
       {{"prompt_tokens", usage.prompt_tokens},
        {"cached_tokens", usage.cached_tokens},
        {"evaluated_tokens", usage.evaluated_tokens},
        {"completion_tokens", usage.completion_tokens}}},
      {"timings",
       {{"queue_ms", usage.queue_us / 1e3},
        {"prefill_ms", usage.prefill_us / 1e3},
        {"decode_ms", usage.decode_us / 1e3},
        {"prefill_tokens_per_second", per_second(usage.evaluated_tokens, usage.prefill_us)},
        // decode_us runs from the first token to the last: one interval less than tokens.
        {"decode_tokens_per_second", per_second(usage.completion_tokens - 1, usage.decode_us)}}}};
  if (!result.message.tool_calls.empty()) json["message"] = message_to_json(result.message);
  Json logprobs = Json::array();
  for (const SampledToken& token : result.tokens) {
    if (token.alternatives.empty()) continue;
    Json entry = logprob_to_json(token.chosen);
    for (const TokenLogprob& other : token.alternatives) {
      entry["top_logprobs"].push_back(logprob_to_json(other));
    }
    logprobs.push_back(std::move(entry));
  }
  if (!logprobs.empty()) json["logprobs"] = std::move(logprobs);
  return json;
}

Json message_to_json(const Message& message) {
  Json json = {{"role", role_name(message.role)}};
  json["content"] = message.content ? Json(*message.content) : Json(nullptr);
  if (!message.name.empty()) json["name"] = message.name;
  if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
  for (const ToolCall& call : message.tool_calls) {
    Json function = {{"name", call.name}, {"arguments", call.arguments_json}};
    json["tool_calls"].push_back({{"id", call.id}, {"type", "function"}, {"function", function}});
  }
  return json;
}

Result<Conversation> load_conversation(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text.ok()) return text.error();
  try {
    Result<Conversation> conversation = parse_conversation(Json::parse(*text));
    if (!conversation.ok()) {
      return make_error(conversation.error().code, path + ": " + conversation.error().message);
    }
    return conversation;
  } catch (const nlohmann::json::exception& e) {
    return invalid_argument(path + ": not a conversation in JSON: " + e.what());
  }
}

Status save_conversation(const std::string& path, const Conversation& conversation) {
  Json json = {{"messages", Json::array()}};
  for (const Message& message : conversation.messages) {
    json["messages"].push_back(message_to_json(message));
  }
  if (!conversation.tools_json.empty()) {
    json["tools"] = Json::parse(conversation.tools_json, nullptr, /*allow_exceptions=*/false);
  }
  return write_file(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace ikv
