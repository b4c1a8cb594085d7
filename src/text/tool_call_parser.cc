#include "text/tool_call_parser.h"

#include <algorithm>
#include <utility>

#include "text/json_guard.h"

namespace ikv {
namespace {

using Json = OrderedJson;

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr std::string_view kSpaces = " \t\r\n";

/// Bytes at the end of `text` that may be the start of `tag`.
size_t partial_tag_bytes(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.substr(text.size() - n) == tag.substr(0, n)) return n;
  }
  return 0;
}

}  // namespace

ToolCallDelta ToolCallParser::push(std::string_view text) {
  buffer_ += text;
  ToolCallDelta delta;
  consume(false, delta);
  return delta;
}

ToolCallDelta ToolCallParser::finish() {
  ToolCallDelta delta;
  consume(true, delta);
  if (inside_) {
    if (!emit_call(buffer_, delta)) emit_text(std::string(kOpen) + buffer_, delta);
  }
  if (!after_call_) delta.text += held_space_;
  buffer_.clear();
  held_space_.clear();
  inside_ = false;
  after_call_ = false;
  return delta;
}

void ToolCallParser::consume(bool at_end, ToolCallDelta& delta) {
  while (!buffer_.empty()) {
    const std::string_view tag = inside_ ? kClose : kOpen;
    const size_t at = buffer_.find(tag);
    if (at == std::string::npos) {
      if (inside_) return;
      const size_t keep = at_end ? 0 : partial_tag_bytes(buffer_, tag);
      emit_text(std::string_view(buffer_).substr(0, buffer_.size() - keep), delta);
      buffer_.erase(0, buffer_.size() - keep);
      return;
    }
    const std::string before = buffer_.substr(0, at);
    buffer_.erase(0, at + tag.size());
    if (!inside_) {
      emit_text(before, delta);
      inside_ = true;
    } else {
      inside_ = false;
      if (!emit_call(before, delta)) {
        emit_text(std::string(kOpen) + before + std::string(kClose), delta);
      }
    }
  }
}

void ToolCallParser::emit_text(std::string_view text, ToolCallDelta& delta) {
  if (after_call_) {
    const size_t first = text.find_first_not_of(kSpaces);
    if (first == std::string_view::npos) return;
    text.remove_prefix(first);
    after_call_ = false;
  }
  const size_t last = text.find_last_not_of(kSpaces);
  if (last == std::string_view::npos) {
    held_space_ += text;
    return;
  }
  delta.text += held_space_;
  delta.text += text.substr(0, last + 1);
  held_space_ = text.substr(last + 1);
}

bool ToolCallParser::emit_call(std::string_view json, ToolCallDelta& delta) {
  const Result<Json> parsed_json = parse_json(json, "tool call");
  if (!parsed_json.ok()) return false;
  const Json& call = *parsed_json;
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return false;
  ToolCall parsed;
  parsed.name = call["name"].get<std::string>();
  const char* key = call.contains("arguments") ? "arguments" : "parameters";
  if (!call.contains(key)) {
    parsed.arguments_json = "{}";
  } else if (call[key].is_string()) {
    // Some models quote the object; OpenAI's field is a string of JSON anyway.
    parsed.arguments_json = call[key].get<std::string>();
  } else {
    parsed.arguments_json = call[key].dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  parsed.id = "call_" + std::to_string(next_id_++);
  delta.tool_calls.push_back(std::move(parsed));
  held_space_.clear();
  after_call_ = true;
  return true;
}

ToolCallDelta parse_tool_calls(std::string_view text) {
  ToolCallParser parser;
  ToolCallDelta whole = parser.push(text);
  ToolCallDelta rest = parser.finish();
  whole.text += rest.text;
  for (ToolCall& call : rest.tool_calls) whole.tool_calls.push_back(std::move(call));
  return whole;
}

}  // namespace ikv
