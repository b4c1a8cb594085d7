// The one plain-text form of tools, calls and results that stands in where a template has none.
#pragma once

#include <string>
#include <string_view>

#include "core/message.h"
#include "text/json_guard.h"

namespace ikv {

inline constexpr std::string_view kHermesCallOpen = "<tool_call>\n";
inline constexpr std::string_view kHermesCallClose = "\n</tool_call>";
inline constexpr std::string_view kHermesResultOpen = "<tool_response>\n";
inline constexpr std::string_view kHermesResultClose = "\n</tool_response>";

/// What the system message says about tools, around the list that hermes_tool_list() gives.
std::string_view hermes_tools_intro();
std::string_view hermes_tools_outro();

/// One tool per line, as JSON.
std::string hermes_tool_list(const OrderedJson& tools);

/// {"name": …, "arguments": …}; arguments that are not JSON stay a string.
std::string hermes_call_json(const ToolCall& call);

/// A call's arguments as JSON, or as a string when they are not JSON.
OrderedJson tool_call_arguments(const ToolCall& call);

}  // namespace ikv
