#include "text/chat_shape.h"

#include <algorithm>
#include <utility>

#include "text/hermes.h"
#include "text/utf8.h"

namespace ikv {
namespace {

PreparedMessage empty_message(Role role) {
  PreparedMessage out;
  out.role = role;
  return out;
}

void append_hermes_tools(const OrderedJson& tools, std::vector<ChatPiece>& pieces) {
  if (!pieces.empty()) pieces.push_back({"\n\n", -1, true});
  pieces.push_back({std::string(hermes_tools_intro()), -1, true});
  pieces.push_back({hermes_tool_list(tools), -1, false});
  pieces.push_back({std::string(hermes_tools_outro()), -1, true});
}

void append_hermes_calls(const Message& message, int32_t index, std::vector<ChatPiece>& pieces) {
  for (const ToolCall& call : message.tool_calls) {
    if (!pieces.empty()) pieces.push_back({"\n", index, true});
    pieces.push_back({std::string(kHermesCallOpen), index, true});
    pieces.push_back({utf8_repair(hermes_call_json(call)), index, false});
    pieces.push_back({std::string(kHermesCallClose), index, true});
  }
}

void append_hermes_result(const std::string& content, int32_t index,
                          std::vector<ChatPiece>& pieces) {
  if (!pieces.empty()) pieces.push_back({"\n", -1, true});
  pieces.push_back({std::string(kHermesResultOpen), -1, true});
  pieces.push_back({content, index, false});
  pieces.push_back({std::string(kHermesResultClose), -1, true});
}

/// The name of the tool that a result answers; templates ask for it, OpenAI's API does not send it.
std::string result_name(std::span<const Message> messages, size_t index) {
  const Message& result = messages[index];
  if (!result.name.empty()) return result.name;
  for (size_t i = index; i-- > 0;) {
    for (const ToolCall& call : messages[i].tool_calls) {
      if (!call.id.empty() && call.id == result.tool_call_id) return call.name;
    }
  }
  return {};
}

PreparedMessage prepare_native(std::span<const Message> messages, size_t index,
                               const TemplateTraits& traits) {
  const Message& message = messages[index];
  PreparedMessage out;
  out.role = message.role;
  out.name = message.role == Role::kTool ? result_name(messages, index) : message.name;
  out.tool_call_id = message.tool_call_id;
  out.tool_calls = message.tool_calls;
  out.null_content = !message.content && !message.tool_calls.empty() && traits.null_content;
  const std::string content = utf8_repair(message.content.value_or(""));
  if (!content.empty()) out.pieces.push_back({content, static_cast<int32_t>(index), false});
  return out;
}

/// Adds message `index` in Hermes text form; tool results in a row share one user message, since
/// many templates insist on alternating roles.
void prepare_hermes(std::span<const Message> messages, size_t index,
                    std::vector<PreparedMessage>& out) {
  const Message& message = messages[index];
  const auto message_index = static_cast<int32_t>(index);
  const std::string content = utf8_repair(message.content.value_or(""));
  if (message.role == Role::kTool) {
    const bool follows_result = index > 0 && messages[index - 1].role == Role::kTool;
    if (!follows_result || out.empty()) out.push_back(empty_message(Role::kUser));
    append_hermes_result(content, message_index, out.back().pieces);
    return;
  }
  PreparedMessage prepared = empty_message(message.role);
  prepared.name = message.name;
  if (!content.empty()) prepared.pieces.push_back({content, message_index, false});
  append_hermes_calls(message, message_index, prepared.pieces);
  out.push_back(std::move(prepared));
}

/// Moves leading system messages to the front of the first user message.
void merge_system(std::vector<PreparedMessage>& messages) {
  std::vector<ChatPiece> system;
  while (!messages.empty() && messages.front().role == Role::kSystem) {
    if (!system.empty()) system.push_back({"\n\n", -1, true});
    for (ChatPiece& piece : messages.front().pieces) system.push_back(std::move(piece));
    messages.erase(messages.begin());
  }
  if (system.empty()) return;
  if (messages.empty() || messages.front().role != Role::kUser) {
    messages.insert(messages.begin(), empty_message(Role::kUser));
  }
  std::vector<ChatPiece>& pieces = messages.front().pieces;
  if (!pieces.empty()) system.push_back({"\n\n", -1, true});
  pieces.insert(pieces.begin(), std::make_move_iterator(system.begin()),
                std::make_move_iterator(system.end()));
}

}  // namespace

std::vector<PreparedMessage> prepare_messages(std::span<const Message> messages,
                                              const OrderedJson& tools,
                                              const TemplateTraits& traits) {
  std::vector<PreparedMessage> out;
  out.reserve(messages.size() + 1);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (traits.has_tools) {
      out.push_back(prepare_native(messages, i, traits));
    } else {
      prepare_hermes(messages, i, out);
    }
  }
  if (!traits.has_tools && tools.is_array() && !tools.empty()) {
    if (out.empty() || out.front().role != Role::kSystem) {
      out.insert(out.begin(), empty_message(Role::kSystem));
    }
    append_hermes_tools(tools, out.front().pieces);
  }
  if (!traits.has_system) merge_system(out);
  return out;
}

}  // namespace ikv
