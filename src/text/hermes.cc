#include "text/hermes.h"

namespace ikv {

std::string_view hermes_tools_intro() {
  return "# Tools\n\n"
         "You can call the functions below when they help. Each line between the tags is one "
         "function with its parameters:\n<tools>\n";
}

std::string_view hermes_tools_outro() {
  return "\n</tools>\n\n"
         "To call a function, answer with its name and arguments as JSON between these tags, once "
         "per call:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <arguments-object>}\n"
         "</tool_call>\nResults come back between <tool_response> tags.";
}

std::string hermes_tool_list(const OrderedJson& tools) {
  std::string out;
  for (const OrderedJson& tool : tools) {
    if (!out.empty()) out += '\n';
    out += python_json(tool);
  }
  return out;
}

OrderedJson tool_call_arguments(const ToolCall& call) {
  if (call.arguments_json.empty()) return OrderedJson::object();
  Result<OrderedJson> parsed = parse_json(call.arguments_json, "arguments");
  return parsed.ok() ? std::move(parsed).value() : OrderedJson(call.arguments_json);
}

std::string hermes_call_json(const ToolCall& call) {
  OrderedJson json = OrderedJson::object();
  json["name"] = call.name;
  json["arguments"] = tool_call_arguments(call);
  return python_json(json);
}

}  // namespace ikv
