#include "server/chat_request.h"

#include <utility>

namespace ikv {
namespace {

bool read_role(const FieldReader& message, Role& role) {
  const Json* field = message.find("role");
  if (field == nullptr) {
    message.fail_missing("role");
    return false;
  }
  if (!field->is_string()) {
    message.fail_type("role", "a string", *field);
    return false;
  }
  const auto& name = field->get_ref<const std::string&>();
  if (name == "system" || name == "developer") {
    role = Role::kSystem;
  } else if (name == "user") {
    role = Role::kUser;
  } else if (name == "assistant") {
    role = Role::kAssistant;
  } else if (name == "tool" || name == "function") {
    role = Role::kTool;
  } else {
    message.fail("role", "invalid_value",
                 "'" + message.path_of("role") +
                     "' must be system, developer, user, assistant or tool; got '" +
                     name.substr(0, 64) + "'");
    return false;
  }
  return true;
}

void read_tool_calls(const FieldReader& message, std::vector<ToolCall>& calls) {
  const Json* list = message.find_array("tool_calls");
  if (list == nullptr) return;
  for (size_t i = 0; i < list->size() && !message.fault(); ++i) {
    const std::string path = message.path_of(element("tool_calls", i));
    const Json& item = (*list)[i];
    if (!item.is_object()) return message.fail_type(element("tool_calls", i), "an object", item);
    const FieldReader fields(item, path, message.fault());
    ToolCall call;
    fields.read_string("id", call.id, kMaxIdBytes);
    const Json* function = fields.find_object("function");
    if (function == nullptr) return fields.fail_missing("function");
    const FieldReader body(*function, path + ".function", message.fault());
    body.read_string("name", call.name, kMaxIdBytes);
    if (call.name.empty()) return body.fail_missing("name");
    if (const Json* arguments = body.find("arguments")) {
      if (!arguments->is_string() && !arguments->is_object()) {
        return body.fail_type("arguments", "a string of JSON", *arguments);
      }
      call.arguments_json = arguments_text(*arguments);
    }
    calls.push_back(std::move(call));
  }
}

Message read_message(const FieldReader& fields) {
  Message message;
  if (!read_role(fields, message.role)) return message;
  fields.read_string("name", message.name, kMaxIdBytes);
  fields.read_string("tool_call_id", message.tool_call_id, kMaxIdBytes);
  if (message.role == Role::kAssistant) read_tool_calls(fields, message.tool_calls);
  if (const Json* content = fields.find("content")) {
    std::string text;
    if (read_text_content(fields, "content", *content, text)) message.content = std::move(text);
  } else if (message.role == Role::kTool) {
    message.content = "";  // a tool that returned nothing
  } else if (message.role != Role::kAssistant) {
    fields.fail_missing("content");
  }
  return message;
}

// True if the tools are to be shown to the model.
bool read_tool_choice(const FieldReader& body) {
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr) return true;
  if (!choice->is_string() && !choice->is_object()) {
    body.fail_type("tool_choice", "a string or an object", *choice);
    return true;
  }
  const std::string name = choice->is_string() ? choice->get<std::string>() : "";
  if (name == "none") return false;
  if (name != "auto") {
    body.fail("tool_choice", "unsupported_value",
              "'tool_choice' supports \"auto\" and \"none\" in this version");
  }
  return true;
}

void read_response_format(const FieldReader& body) {
  const Json* format = body.find_object("response_format");
  if (format == nullptr) return;
  std::string type;
  FieldReader(*format, "response_format", body.fault()).read_string("type", type);
  if (type != "text") {
    body.fail("response_format.type", "unsupported_value",
              "'response_format.type' supports only \"text\" in this version");
  }
}

void refuse_legacy_functions(const FieldReader& body) {
  for (const char* name : {"functions", "function_call"}) {
    if (body.find(name) == nullptr) continue;
    body.fail(name, "unsupported_parameter",
              "'" + std::string(name) + "' is deprecated and not supported; use 'tools'");
  }
}

void read_logprobs(const FieldReader& body, GenerationConfig& config) {
  bool wanted = false;
  body.read_bool("logprobs", wanted);
  int alternatives = 0;
  body.read_int("top_logprobs", alternatives, 0, 20);
  if (alternatives > 0 && !wanted) {
    body.fail("top_logprobs", "invalid_value", "'top_logprobs' needs 'logprobs': true");
  }
  if (wanted) config.num_logprobs = alternatives;
}

}  // namespace

std::string arguments_text(const Json& arguments) {
  return arguments.is_string() ? arguments.get<std::string>() : dump_json(arguments);
}

bool read_text_content(const FieldReader& owner, const char* name, const Json& content,
                       std::string& text) {
  if (content.is_string()) {
    text = content.get<std::string>();
    return true;
  }
  if (!content.is_array()) {
    owner.fail_type(name, "a string or an array of text parts", content);
    return false;
  }
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string part_name = element(name, i);
    const Json& part = content[i];
    if (!part.is_object()) {
      owner.fail_type(part_name, "an object", part);
      return false;
    }
    const FieldReader fields(part, owner.path_of(part_name), owner.fault());
    std::string type, piece;
    fields.read_string("type", type, kMaxIdBytes);
    const bool refusal = type == "refusal";
    if (!refusal && type != "text" && type != "input_text" && type != "output_text") {
      fields.fail("type", "unsupported_value",
                  "'" + fields.path_of("type") + "' must be \"text\": this model reads text only");
      return false;
    }
    const char* field = refusal ? "refusal" : "text";
    if (fields.find(field) == nullptr) fields.fail_missing(field);
    fields.read_string(field, piece);
    if (owner.fault()) return false;
    if (i > 0) text += '\n';
    text += piece;
  }
  return true;
}

std::vector<Message> read_messages(const FieldReader& body) {
  std::vector<Message> messages;
  const Json* list = body.find_array("messages");
  if (body.fault()) return messages;
  if (list == nullptr) {
    body.fail_missing("messages");
    return messages;
  }
  if (list->empty()) body.fail("messages", "invalid_value", "'messages' must not be empty");
  if (list->size() > kMaxRequestMessages) {
    body.fail("messages", "array_above_max_length",
              "'messages' has " + std::to_string(list->size()) + " elements; at most " +
                  std::to_string(kMaxRequestMessages) + " are allowed");
  }
  for (size_t i = 0; i < list->size() && !body.fault(); ++i) {
    const Json& item = (*list)[i];
    if (!item.is_object()) {
      body.fail_type(element("messages", i), "an object", item);
      break;
    }
    messages.push_back(read_message(FieldReader(item, element("messages", i), body.fault())));
  }
  return messages;
}

std::string read_tools(const FieldReader& body) {
  const Json* tools = body.find_array("tools");
  if (tools == nullptr || tools->empty()) return {};
  for (size_t i = 0; i < tools->size() && !body.fault(); ++i) {
    const std::string path = element("tools", i);
    const Json& tool = (*tools)[i];
    if (!tool.is_object()) {
      body.fail_type(path, "an object", tool);
      break;
    }
    const FieldReader fields(tool, path, body.fault());
    std::string type = "function", name;
    fields.read_string("type", type);
    if (type != "function") {
      fields.fail("type", "unsupported_value", "'" + path + ".type' must be \"function\"");
    }
    const Json* function = fields.find_object("function");
    if (function == nullptr) {
      fields.fail_missing("function");
      break;
    }
    const FieldReader inner(*function, path + ".function", body.fault());
    inner.read_string("name", name, kMaxIdBytes);
    if (name.empty()) inner.fail_missing("name");
    std::string description;
    inner.read_string("description", description);
    inner.find_object("parameters");
  }
  return body.fault() ? std::string() : dump_json(*tools);
}

ApiResult<ChatCall> parse_chat_call(const Json& json, const GenerationConfig& defaults) {
  RequestFault fault;
  const FieldReader body(json, "", fault);
  ChatCall call;
  ChatRequest& request = call.request;
  request.generation = defaults;
  request.messages = read_messages(body);
  request.tools_json = read_tools(body);
  if (!read_tool_choice(body)) request.tools_json.clear();
  if (const Json* kwargs = body.find_object("chat_template_kwargs")) {
    request.template_kwargs_json = dump_json(*kwargs);
  }
  body.read_string("cache_salt", request.cache_salt, kMaxIdBytes);
  read_sampling(body, request.generation);
  read_logprobs(body, request.generation);
  read_reply_options(body, call.options);
  read_policy_fields(body, request);
  read_response_format(body);
  refuse_legacy_functions(body);
  if (fault) return *std::move(fault.error);
  return call;
}

}  // namespace ikv
