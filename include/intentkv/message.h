// The chat messages that clients send and templates render.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ikv {

enum class Role : uint8_t { kSystem, kUser, kAssistant, kTool };

/// "system", "user", "assistant", "tool".
constexpr std::string_view role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
  }
  return "?";
}

/// One call of a tool by the assistant, as in OpenAI's API.
struct ToolCall {
  std::string id;  ///< may be empty
  std::string name;
  std::string arguments_json;  ///< JSON text; compared parsed, never byte by byte
};

/// One message of a conversation. `content` absent is OpenAI's null content.
struct Message {
  Role role = Role::kUser;
  std::optional<std::string> content;
  std::string name;
  std::vector<ToolCall> tool_calls;
  std::string tool_call_id;
};

}  // namespace ikv
