// The tokenizer and template of the real model file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "text/test_chat.h"
#include "text/tokenizer_gguf.h"

namespace ikv {
namespace {

using ::testing::HasSubstr;

std::string model_path() {
  const char* path = std::getenv("IKV_TEST_MODEL");
  return path != nullptr ? path
                         : std::string(IKV_SOURCE_DIR) + "/models/smollm2-135m-instruct-q4_1.gguf";
}

class TokenizerModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(model_path())) {
      GTEST_SKIP() << model_path() << " is missing; `intentkv model get smollm2` brings it";
    }
    const Result<GgufFile> file = GgufFile::open(model_path());
    ASSERT_TRUE(file.ok()) << file.error().message;
    auto tokenizer = load_tokenizer(*file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    tokenizer_ = *tokenizer;
    auto chat_template = load_chat_template(*file, tokenizer_);
    ASSERT_TRUE(chat_template.ok()) << chat_template.error().message;
    chat_template_ = std::move(*chat_template);
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_template_;
};

TEST_F(TokenizerModelTest, GivesLlamaCppsIds) {
  const nlohmann::json golden = test::load_golden("tokenizer_smollm2.json");
  ASSERT_GE(golden["texts"].size(), 500u);
  for (bool parse_special : {false, true}) {
    const nlohmann::json& expected = golden[parse_special ? "special" : "plain"];
    for (size_t i = 0; i < golden["texts"].size(); ++i) {
      const std::string text = test::golden_text(golden["texts"][i]);
      EXPECT_EQ(*tokenizer_->encode(text, parse_special), expected[i].get<std::vector<TokenId>>())
          << testing::PrintToString(text);
    }
  }
}

TEST_F(TokenizerModelTest, TemplateRendersAsJinja2) {
  int compared = 0;
  for (const OrderedJson& expected : test::golden()["model_cases"]) {
    const auto conversation = expected["conversation"].get<std::string>();
    if (conversation == "tools" || conversation == "two_calls")
      continue;  // written in Hermes' form
    ChatRenderOptions options;
    options.add_generation_prompt = expected["add_generation_prompt"].get<bool>();
    const auto messages = test::golden_conversation(test::golden()["conversations"][conversation]);
    const auto text = chat_template_->render(messages, options);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(*text, expected["text"].get<std::string>());
    const auto chat = chat_template_->tokenize(messages, options);
    ASSERT_TRUE(chat.ok());
    test::expect_tiling(*chat);
    EXPECT_EQ(chat->tokens, *tokenizer_->encode(*text, true));
    for (const Span& span : chat->spans) {
      if (span.part != SpanPart::kContent) continue;
      const std::string& content = *messages[span.message].content;
      const std::string found =
          test::part_text(*tokenizer_, *chat, span.message, SpanPart::kContent);
      // Coarse: a token joins the content's first line break with the header's.
      EXPECT_THAT(found, HasSubstr(content));
      EXPECT_EQ(span.coarse, found != content);
    }
    ++compared;
  }
  EXPECT_GE(compared, 14);
}

TEST_F(TokenizerModelTest, KnowsItsSpecialTokens) {
  EXPECT_TRUE(tokenizer_->is_end_of_generation(tokenizer_->find_token("<|im_end|>")));
  EXPECT_TRUE(tokenizer_->is_end_of_generation(tokenizer_->find_token("<|endoftext|>")));
  EXPECT_FALSE(tokenizer_->add_bos());
  EXPECT_FALSE(chat_template_->has_native_tools());
  EXPECT_FALSE(chat_template_->is_fallback());
  EXPECT_THAT(chat_template_->warning(), HasSubstr("has no tools"));
}

}  // namespace
}  // namespace ikv
