#include "server/responses_request.h"

#include <utility>

#include "server/flat_tools.h"

namespace ikv {
namespace {

void read_message_item(const FieldReader& item, std::vector<Message>& messages) {
  std::string role;
  item.read_string("role", role, kMaxIdBytes);
  Message message;
  if (role == "system" || role == "developer") {
    message.role = Role::kSystem;
  } else if (role == "assistant") {
    message.role = Role::kAssistant;
  } else if (role != "user") {
    return item.fail("role", role.empty() ? "missing_required_parameter" : "invalid_value",
                     "'" + item.path_of("role") + "' must be user, assistant, system or developer");
  }
  const Json* content = item.find("content");
  if (content == nullptr) return item.fail_missing("content");
  message.content = "";
  read_text_content(item, "content", *content, *message.content);
  messages.push_back(std::move(message));
}

// Calls of one turn come as items of their own; templates want them in one message.
void read_call_item(const FieldReader& item, std::vector<Message>& messages) {
  ToolCall call;
  item.read_string("call_id", call.id, kMaxIdBytes);
  item.read_string("name", call.name, kMaxIdBytes);
  item.read_string("arguments", call.arguments_json);
  if (call.name.empty()) return item.fail_missing("name");
  if (messages.empty() || messages.back().role != Role::kAssistant) {
    messages.emplace_back().role = Role::kAssistant;
  }
  messages.back().tool_calls.push_back(std::move(call));
}

void read_output_item(const FieldReader& item, std::vector<Message>& messages) {
  Message message;
  message.role = Role::kTool;
  message.content = "";
  item.read_string("call_id", message.tool_call_id, kMaxIdBytes);
  if (const Json* output = item.find("output")) {
    read_text_content(item, "output", *output, *message.content);
  }
  messages.push_back(std::move(message));
}

void read_item(const FieldReader& item, std::vector<Message>& messages) {
  std::string type = "message";
  item.read_string("type", type, kMaxIdBytes);
  if (type == "message") {
    read_message_item(item, messages);
  } else if (type == "function_call") {
    read_call_item(item, messages);
  } else if (type == "function_call_output") {
    read_output_item(item, messages);
  } else if (type != "reasoning") {
    item.fail("type", "unsupported_value",
              "'" + item.path_of("type") + "' is not supported: '" + type.substr(0, 64) + "'");
  }
}

void read_input(const FieldReader& body, std::vector<Message>& messages) {
  const Json* input = body.find("input");
  if (input == nullptr) return body.fail_missing("input");
  if (input->is_string()) {
    Message message;
    message.content = input->get<std::string>();
    messages.push_back(std::move(message));
    return;
  }
  if (!input->is_array()) return body.fail_type("input", "a string or an array of items", *input);
  for (size_t i = 0; i < input->size() && !body.fault(); ++i) {
    const Json& item = (*input)[i];
    const std::string path = element("input", i);
    if (!item.is_object()) return body.fail_type(path, "an object", item);
    read_item(FieldReader(item, path, body.fault()), messages);
  }
}

// {type, name, description, parameters}.
constexpr FlatToolShape kToolShape{"", "function", "parameters"};

void refuse_unsupported(const FieldReader& body) {
  if (const Json* text = body.find_object("text")) {
    const FieldReader fields(*text, "text", body.fault());
    std::string type = "text";
    if (const Json* format = fields.find_object("format")) {
      FieldReader(*format, "text.format", body.fault()).read_string("type", type);
    }
    if (type != "text") {
      body.fail("text.format.type", "unsupported_value",
                "'text.format.type' supports only \"text\" in this version");
    }
  }
  bool background = false;
  body.read_bool("background", background);
  if (background) {
    body.fail("background", "unsupported_value", "'background' responses are not supported");
  }
}

bool read_tool_choice(const FieldReader& body) {
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return true;
  if (*choice == "none") return false;
  body.fail("tool_choice", "unsupported_value",
            "'tool_choice' supports \"auto\" and \"none\" in this version");
  return true;
}

void start_conversation(const FieldReader& body, const FindResponse& find, ResponsesCall& call) {
  std::vector<Message>& messages = call.request.messages;
  body.read_string("instructions", call.instructions);
  body.read_string("previous_response_id", call.previous_response_id, kMaxIdBytes);
  if (!call.instructions.empty()) {
    Message system;
    system.role = Role::kSystem;
    system.content = call.instructions;
    messages.push_back(std::move(system));
  }
  if (call.previous_response_id.empty()) return;
  std::optional<std::vector<Message>> earlier = find(call.previous_response_id);
  if (!earlier) {
    return body.fail(
        "previous_response_id", "previous_response_not_found",
        "no stored response '" + call.previous_response_id + "'; send the whole input instead");
  }
  for (Message& message : *earlier) messages.push_back(std::move(message));
}

}  // namespace

ApiResult<ResponsesCall> parse_responses_call(const Json& json, const GenerationConfig& defaults,
                                              const FindResponse& find) {
  RequestFault fault;
  const FieldReader body(json, "", fault);
  ResponsesCall call;
  ChatRequest& request = call.request;
  request.generation = defaults;
  start_conversation(body, find, call);
  read_input(body, request.messages);
  if (request.messages.empty()) body.fail("input", "invalid_value", "'input' must not be empty");
  request.tools_json = read_flat_tools(body, kToolShape);
  if (!read_tool_choice(body)) request.tools_json.clear();
  read_sampling(body, request.generation);
  body.read_int("max_output_tokens", request.generation.max_tokens, 1, INT32_MAX);
  body.read_string("cache_salt", request.cache_salt, kMaxIdBytes);
  body.read_bool("store", call.store);
  read_reply_options(body, call.options);
  read_policy_fields(body, request);
  refuse_unsupported(body);
  call.options.num_choices = 1;
  if (fault) return *std::move(fault.error);
  const auto repeated = [&](const char* name, const Json& otherwise) {
    const Json* field = body.find(name);
    call.echo[name] = field == nullptr ? otherwise : *field;
  };
  repeated("instructions", nullptr);
  repeated("previous_response_id", nullptr);
  repeated("max_output_tokens", nullptr);
  repeated("metadata", Json::object());
  repeated("tools", Json::array());
  repeated("tool_choice", "auto");
  repeated("parallel_tool_calls", true);
  call.echo["temperature"] = request.generation.temperature;
  call.echo["top_p"] = request.generation.top_p;
  call.echo["store"] = call.store;
  return call;
}

}  // namespace ikv
