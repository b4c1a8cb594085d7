// What a chat template can do, and conversations brought into a form that it can render. Internal
// to src/text.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/message.h"
#include "text/json_guard.h"
#include "text/template_program.h"
#include "text/tokenizer.h"

namespace ikv {

/// A stretch of a rendered message's content.
struct ChatPiece {
  std::string text;
  int32_t message = -1;  ///< whose content it is; -1: our own text (tool instructions)
  bool trusted = false;  ///< our own tags: control tokens in it count, its place is not tracked
};

/// One message as the template sees it; several tool results may have become one user message.
struct PreparedMessage {
  Role role = Role::kUser;
  std::vector<ChatPiece> pieces;
  bool null_content = false;
  std::string name;
  std::string tool_call_id;
  std::vector<ToolCall> tool_calls;  ///< rendered by the template itself
};

/// Found by rendering probe conversations once per template.
struct TemplateTraits {
  bool has_system = true;
  bool has_tools = true;      ///< renders tool schemas, calls and results itself
  bool null_content = true;   ///< accepts null content beside tool calls
  bool hermes_calls = false;  ///< writes calls in <tool_call> tags (always so without has_tools)
  /// What stands before and after a content, by role; empty when unknown.
  std::array<std::string, 4> header;
  std::array<std::string, 4> footer;
};

/// A piece's place in a rendered text.
struct PieceRange {
  size_t begin = 0;
  size_t end = 0;
  int32_t message = -1;
  size_t piece = 0;      ///< index among all pieces of the prepared messages
  bool altered = false;  ///< the template dropped whitespace around it
};

/// A rendered conversation. In `text`, `mark` follows the first character of each control token
/// that was written in foreign strings; it appears nowhere else.
struct MarkedRender {
  std::string text;
  std::string mark;
  std::vector<PieceRange> pieces;  ///< ascending, disjoint; pieces whose place is unknown lack
};

/// Everything besides messages that a rendering takes.
struct RenderInput {
  OrderedJson tools;   ///< array, or null
  OrderedJson kwargs;  ///< object, or null
  bool add_generation_prompt = true;
};

/// Messages in the form that `traits` allow: Hermes text for tools where the template has none, the
/// system message in front of the first user message where it has no system role. Repairs UTF-8.
std::vector<PreparedMessage> prepare_messages(std::span<const Message> messages,
                                              const OrderedJson& tools,
                                              const TemplateTraits& traits);

/// Renders and finds each piece's place by rendering again with sentinels around the pieces.
Result<MarkedRender> render_marked(const TemplateProgram& program, const Tokenizer& tokenizer,
                                   std::span<const PreparedMessage> messages,
                                   const RenderInput& input);

/// Probes the template. Never fails: what cannot be rendered is taken as not supported.
TemplateTraits probe_template(const TemplateProgram& program, const Tokenizer& tokenizer);

}  // namespace ikv
