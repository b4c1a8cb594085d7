// Conversations and templates for the tests of src/text, from tests/golden.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "text/chat_template.h"
#include "text/test_vocab.h"

namespace ikv::test {

inline const OrderedJson& golden() {
  static const OrderedJson kGolden = [] {
    std::ifstream file(std::string(IKV_SOURCE_DIR) + "/tests/golden/tokenizer_templates.json");
    return OrderedJson::parse(file);
  }();
  return kGolden;
}

inline Message message(Role role, std::string content) {
  Message out;
  out.role = role;
  out.content = std::move(content);
  return out;
}

inline Message call_message(std::vector<ToolCall> calls) {
  Message out;
  out.role = Role::kAssistant;
  out.tool_calls = std::move(calls);
  return out;
}

inline std::vector<Message> golden_conversation(const OrderedJson& messages) {
  std::vector<Message> out;
  for (const OrderedJson& json : messages) {
    Message item;
    for (Role role : {Role::kSystem, Role::kUser, Role::kAssistant, Role::kTool}) {
      if (json["role"] == role_name(role)) item.role = role;
    }
    item.content = json["content"].get<std::string>();
    item.name = json.value("name", "");
    item.tool_call_id = json.value("tool_call_id", "");
    if (json.contains("tool_calls")) {
      for (const OrderedJson& call : json["tool_calls"]) {
        item.tool_calls.push_back({call["id"].get<std::string>(),
                                   call["function"]["name"].get<std::string>(),
                                   call["function"]["arguments"].dump()});
      }
    }
    out.push_back(std::move(item));
  }
  return out;
}

inline std::unique_ptr<ChatTemplate> make_template(const std::string& name,
                                                   const std::string& vocabulary = "bpe") {
  auto out = ChatTemplate::create(golden()["templates"][name].get<std::string>(),
                                  test::small_tokenizer(vocabulary));
  EXPECT_TRUE(out.ok()) << out.error().message;
  return out.ok() ? std::move(*out) : nullptr;
}

inline std::string tools_json() {
  return golden()["tools"].dump();
}

/// The text of message `index`'s tokens in `part`.
inline std::string part_text(const Tokenizer& tokenizer, const TokenizedChat& chat, int32_t index,
                             SpanPart part) {
  std::string out;
  for (const Span& span : chat.spans) {
    if (span.message != index || span.part != part) continue;
    const std::span<const TokenId> tokens(chat.tokens);
    out += *tokenizer.decode(tokens.subspan(span.begin, span.end - span.begin), true);
  }
  return out;
}

inline void expect_tiling(const TokenizedChat& chat) {
  LogicalPos at = 0;
  for (const Span& span : chat.spans) {
    EXPECT_EQ(span.begin, at);
    EXPECT_GT(span.end, span.begin);
    at = span.end;
  }
  EXPECT_EQ(at, static_cast<LogicalPos>(chat.tokens.size()));
}

}  // namespace ikv::test
