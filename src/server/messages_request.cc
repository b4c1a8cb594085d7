#include "server/messages_request.h"

#include <utility>

#include "server/flat_tools.h"

namespace ikv {
namespace {

void append_line(std::string& text, const std::string& piece) {
  if (!text.empty()) text += '\n';
  text += piece;
}

// Everything that one message's blocks hold.
struct Blocks {
  std::string text;
  std::vector<ToolCall> tool_calls;
  std::vector<Message> tool_results;
};

void read_tool_use(const FieldReader& block, Blocks& blocks) {
  ToolCall call;
  block.read_string("id", call.id, kMaxIdBytes);
  block.read_string("name", call.name, kMaxIdBytes);
  if (call.name.empty()) block.fail_missing("name");
  const Json* input = block.find_object("input");
  call.arguments_json = input == nullptr ? "{}" : dump_json(*input);
  blocks.tool_calls.push_back(std::move(call));
}

void read_tool_result(const FieldReader& block, Blocks& blocks) {
  Message result;
  result.role = Role::kTool;
  block.read_string("tool_use_id", result.tool_call_id, kMaxIdBytes);
  result.content = "";
  if (const Json* content = block.find("content")) {
    read_text_content(block, "content", *content, *result.content);
  }
  blocks.tool_results.push_back(std::move(result));
}

void read_block(const FieldReader& block, bool assistant, Blocks& blocks) {
  std::string type;
  block.read_string("type", type, kMaxIdBytes);
  if (type == "text") {
    std::string text;
    if (block.find("text") == nullptr) block.fail_missing("text");
    block.read_string("text", text);
    append_line(blocks.text, text);
  } else if (type == "tool_use" && assistant) {
    read_tool_use(block, blocks);
  } else if (type == "tool_result" && !assistant) {
    read_tool_result(block, blocks);
  } else if (type != "thinking" && type != "redacted_thinking") {
    block.fail(
        "type", "unsupported_value",
        "'" + block.path_of("type") + "' is not supported here: '" + type.substr(0, 64) + "'");
  }
}

void read_message(const FieldReader& fields, std::vector<Message>& messages) {
  std::string role;
  fields.read_string("role", role, kMaxIdBytes);
  if (role != "user" && role != "assistant") {
    return fields.fail("role", role.empty() ? "missing_required_parameter" : "invalid_value",
                       "'" + fields.path_of("role") + "' must be \"user\" or \"assistant\"");
  }
  const bool assistant = role == "assistant";
  const Json* content = fields.find("content");
  if (content == nullptr) return fields.fail_missing("content");
  Blocks blocks;
  if (content->is_string()) {
    blocks.text = content->get<std::string>();
  } else if (content->is_array()) {
    for (size_t i = 0; i < content->size() && !fields.fault(); ++i) {
      const Json& block = (*content)[i];
      const std::string name = element("content", i);
      if (!block.is_object()) return fields.fail_type(name, "an object", block);
      read_block(FieldReader(block, fields.path_of(name), fields.fault()), assistant, blocks);
    }
  } else {
    return fields.fail_type("content", "a string or an array of blocks", *content);
  }
  const bool only_results = !blocks.tool_results.empty() && blocks.text.empty();
  for (Message& result : blocks.tool_results) messages.push_back(std::move(result));
  if (only_results) return;
  Message message;
  message.role = assistant ? Role::kAssistant : Role::kUser;
  if (!blocks.text.empty() || blocks.tool_calls.empty()) message.content = std::move(blocks.text);
  message.tool_calls = std::move(blocks.tool_calls);
  messages.push_back(std::move(message));
}

void read_system(const FieldReader& body, std::vector<Message>& messages) {
  const Json* system = body.find("system");
  if (system == nullptr) return;
  Message message;
  message.role = Role::kSystem;
  message.content = "";
  read_text_content(body, "system", *system, *message.content);
  messages.push_back(std::move(message));
}

// Anthropic's {name, description, input_schema}; the type may be left out.
constexpr FlatToolShape kToolShape{"custom", "custom", "input_schema"};

// True if the tools are to be shown to the model.
bool read_tool_choice(const FieldReader& body, ReplyOptions& options) {
  const Json* choice = body.find_object("tool_choice");
  if (choice == nullptr) return true;
  const FieldReader fields(*choice, "tool_choice", body.fault());
  std::string type = "auto";
  bool one_only = false;
  fields.read_string("type", type, kMaxIdBytes);
  fields.read_bool("disable_parallel_tool_use", one_only);
  if (one_only) options.parallel_tool_calls = false;
  if (type != "auto" && type != "none") {
    fields.fail("type", "unsupported_value",
                "'tool_choice.type' supports \"auto\" and \"none\" in this version");
  }
  return type != "none";
}

void read_stop_sequences(const FieldReader& body, GenerationConfig& config) {
  const Json* stops = body.find_array("stop_sequences");
  if (stops == nullptr) return;
  config.stop.clear();
  for (size_t i = 0; i < stops->size(); ++i) {
    if (!(*stops)[i].is_string()) {
      return body.fail_type(element("stop_sequences", i), "a string", (*stops)[i]);
    }
    config.stop.push_back((*stops)[i].get<std::string>());
  }
}

}  // namespace

ApiResult<ChatCall> parse_messages_call(const Json& json, const GenerationConfig& defaults,
                                        bool needs_limit) {
  RequestFault fault;
  const FieldReader body(json, "", fault);
  ChatCall call;
  ChatRequest& request = call.request;
  request.generation = defaults;
  read_system(body, request.messages);
  const Json* list = body.find_array("messages");
  if (list == nullptr || list->empty()) body.fail_missing("messages");
  for (size_t i = 0; list != nullptr && i < list->size() && !fault; ++i) {
    const Json& item = (*list)[i];
    const std::string path = element("messages", i);
    if (!item.is_object()) {
      body.fail_type(path, "an object", item);
    } else {
      read_message(FieldReader(item, path, fault), request.messages);
    }
  }
  request.tools_json = read_flat_tools(body, kToolShape);
  if (!read_tool_choice(body, call.options)) request.tools_json.clear();
  if (needs_limit && body.find("max_tokens") == nullptr) body.fail_missing("max_tokens");
  read_sampling(body, request.generation);
  read_stop_sequences(body, request.generation);
  body.read_string("cache_salt", request.cache_salt, kMaxIdBytes);
  read_reply_options(body, call.options);
  read_policy_fields(body, request);
  call.options.num_choices = 1;
  if (fault) return *std::move(fault.error);
  return call;
}

}  // namespace ikv
