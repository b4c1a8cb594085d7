// ToolCallParser: finds Hermes-style tool calls in a reply while it streams.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/message.h"

namespace ikv {

/// What one piece of reply text adds.
struct ToolCallDelta {
  std::string text;                  ///< text outside calls, to show at once
  std::vector<ToolCall> tool_calls;  ///< calls that this piece completed; ids are "call_N"
};

/// Splits `<tool_call>{"name": …, "arguments": {…}}</tool_call>` from text. Text that may be the
/// start of a tag is held back until it is clear. A block whose JSON is not a call is given out as
/// the text that it is. Whitespace next to a block is layout, not text. Not thread-safe.
class ToolCallParser {
 public:
  /// `first_id`: number in the first call's id.
  explicit ToolCallParser(int first_id = 0) : next_id_(first_id) {}

  /// Takes the next piece of the reply.
  ToolCallDelta push(std::string_view text);

  /// The end of the reply: what was held back. A block without its end tag counts if its JSON is
  /// whole (small models forget the tag).
  ToolCallDelta finish();

  /// Whether the parser is inside a `<tool_call>` block.
  bool inside_call() const { return inside_; }

 private:
  void consume(bool at_end, ToolCallDelta& delta);
  void emit_text(std::string_view text, ToolCallDelta& delta);
  bool emit_call(std::string_view json, ToolCallDelta& delta);

  std::string buffer_;
  std::string held_space_;  // whitespace before a possible block
  bool inside_ = false;
  bool after_call_ = false;  // skip whitespace that follows a block
  int next_id_;
};

/// Parses a whole reply at once.
ToolCallDelta parse_tool_calls(std::string_view text);

}  // namespace ikv
