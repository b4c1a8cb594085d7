#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/test_chat.h"

namespace ikv {
namespace {

using test::expect_tiling;
using test::golden;
using test::golden_conversation;
using test::make_template;
using test::part_text;
using test::tools_json;
using ::testing::HasSubstr;

TEST(TemplateProgramTest, RendersAsJinja2) {
  int compared = 0;
  for (const OrderedJson& expected : golden()["cases"]) {
    const auto name = expected["template"].get<std::string>();
    const auto program = TemplateProgram::compile(golden()["templates"][name].get<std::string>());
    ASSERT_TRUE(program.ok()) << program.error().message;
    OrderedJson context;
    context["messages"] = golden()["conversations"][expected["conversation"].get<std::string>()];
    context["tools"] = expected["tools"].get<bool>() ? golden()["tools"] : OrderedJson();
    context["documents"] = OrderedJson();
    context["add_generation_prompt"] = expected["add_generation_prompt"];
    context["bos_token"] = "<|begin|>";
    context["eos_token"] = "<|end|>";
    context["enable_thinking"] = false;
    const auto text = program->render(context.dump());
    const std::string where = name + " " + expected["conversation"].get<std::string>();
    if (expected.contains("raised")) {
      ASSERT_FALSE(text.ok()) << where;
      EXPECT_THAT(text.error().message, HasSubstr(expected["raised"].get<std::string>())) << where;
    } else {
      ASSERT_TRUE(text.ok()) << where << ": " << text.error().message;
      EXPECT_EQ(*text, expected["text"].get<std::string>()) << where;
    }
    ++compared;
  }
  EXPECT_GT(compared, 200);
}

TEST(ChatTemplateTest, RendersAsJinja2FromMessages) {
  int compared = 0;
  for (const OrderedJson& expected : golden()["cases"]) {
    const auto name = expected["template"].get<std::string>();
    const auto conversation = expected["conversation"].get<std::string>();
    const bool has_calls = conversation == "tools" || conversation == "two_calls";
    const bool native_tools = name == "qwen_like";
    if (name != "qwen_like" && name != "thinking" && name != "chatml_default_system") continue;
    if ((has_calls || expected["tools"].get<bool>()) && !native_tools) continue;
    const auto chat_template = make_template(name);
    ChatRenderOptions options;
    if (expected["tools"].get<bool>()) options.tools_json = tools_json();
    options.add_generation_prompt = expected["add_generation_prompt"].get<bool>();
    options.kwargs_json = R"({"enable_thinking": false})";
    const auto text = chat_template->render(
        golden_conversation(golden()["conversations"][conversation]), options);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, expected["text"].get<std::string>()) << name << " " << conversation;
    ++compared;
  }
  EXPECT_GT(compared, 50);
}

TEST(ChatTemplateTest, SpansFindEveryContentAndCoverAllTokens) {
  int exact = 0, altered = 0;
  for (const std::string name :
       {"chatml_default_system", "qwen_like", "thinking", "gemma_like", "llama3_like", "inst"}) {
    const auto chat_template = make_template(name);
    const auto tokenizer = test::small_tokenizer("bpe");
    for (const auto& [conversation, json] : golden()["conversations"].items()) {
      const std::vector<Message> messages = golden_conversation(json);
      for (bool prompt : {true, false}) {
        const auto chat = chat_template->tokenize(messages, {"", "", prompt});
        if (!chat.ok()) {
          EXPECT_THAT(chat.error().message, HasSubstr("refuses"));
          continue;
        }
        SCOPED_TRACE(name + " " + conversation);
        expect_tiling(*chat);
        for (size_t i = 0; i < messages.size(); ++i) {
          const auto index = static_cast<int32_t>(i);
          bool coarse = false;
          for (const Span& span : chat->spans) {
            if (span.message != index) continue;
            EXPECT_EQ(span.role, messages[i].role);
            coarse |= span.coarse;
          }
          altered += coarse;
          const std::string content = part_text(*tokenizer, *chat, index, SpanPart::kContent);
          if (messages[i].tool_calls.empty() && !coarse) {
            EXPECT_EQ(content, *messages[i].content);
            exact += !content.empty();
          } else if (!messages[i].tool_calls.empty()) {
            for (const ToolCall& call : messages[i].tool_calls) {
              EXPECT_THAT(content, HasSubstr(call.name));
            }
          }
        }
        const Span& last = chat->spans.back();
        if (prompt && name != "inst") {
          EXPECT_EQ(last.message, static_cast<int32_t>(messages.size()));
          EXPECT_EQ(last.role, Role::kAssistant);
          EXPECT_EQ(last.part, SpanPart::kHeader);
        }
      }
    }
  }
  EXPECT_GT(exact, 150);
  EXPECT_GT(altered, 0);
  EXPECT_LT(altered, 60);
}

TEST(ChatTemplateTest, TokensEqualTokenisingTheWholeRenderedText) {
  const auto tokenizer = test::small_tokenizer("bpe");
  for (const std::string name : {"chatml_default_system", "qwen_like", "thinking", "llama3_like"}) {
    const auto chat_template = make_template(name);
    for (const auto& [conversation, json] : golden()["conversations"].items()) {
      const auto messages = golden_conversation(json);
      const auto text = chat_template->render(messages, {});
      if (!text.ok()) continue;
      const auto chat = chat_template->tokenize(messages, {});
      ASSERT_TRUE(chat.ok());
      EXPECT_EQ(chat->tokens, *tokenizer->encode(*text, true)) << name << " " << conversation;
    }
  }
}

}  // namespace
}  // namespace ikv
