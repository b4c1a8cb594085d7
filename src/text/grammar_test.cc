#include "text/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "text/test_vocab.h"

namespace ikv {
namespace {

using ::testing::HasSubstr;

bool allows(std::span<const uint32_t> words, TokenId token) {
  return (words[token / 32] >> (token % 32)) & 1;
}

constexpr std::string_view kSchema = R"({
  "type": "object",
  "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 1, "maximum": 99}},
  "required": ["city", "days"],
  "additionalProperties": false})";

TEST(GrammarTest, RandomWalksWithinASchemaGiveValidJson) {
  for (const std::string key : {"bpe", "spm"}) {
    const auto tokenizer = test::small_tokenizer(key);
    const auto compiler = GrammarCompiler::create(*tokenizer);
    ASSERT_TRUE(compiler.ok()) << compiler.error().message;
    std::mt19937 rng(3);
    int finished = 0;
    for (int round = 0; round < 20; ++round) {
      auto grammar = compiler->compile(GrammarKind::kJsonSchema, kSchema);
      ASSERT_TRUE(grammar.ok()) << grammar.error().message;
      std::vector<TokenId> reply;
      for (int step = 0; step < 200; ++step) {
        const auto allowed = grammar->allowed();
        ASSERT_TRUE(allowed.ok()) << allowed.error().message;
        std::vector<TokenId> choices;
        for (TokenId t = 0; t < tokenizer->vocab_size(); ++t) {
          if (allows(*allowed, t)) choices.push_back(t);
        }
        ASSERT_FALSE(choices.empty());
        const TokenId token = choices[rng() % choices.size()];
        if (tokenizer->is_end_of_generation(token)) {
          EXPECT_TRUE(*grammar->may_end());
          ++finished;
          break;
        }
        EXPECT_FALSE(tokenizer->is_control(token));
        reply.push_back(token);
        ASSERT_TRUE(grammar->accept(token).ok());
      }
      if (!*grammar->may_end()) continue;
      const auto json = nlohmann::json::parse(*tokenizer->decode(reply), nullptr, false);
      ASSERT_TRUE(json.is_object()) << *tokenizer->decode(reply);
      EXPECT_TRUE(json.at("city").is_string());
      EXPECT_GE(json.at("days").get<int>(), 1);
    }
    EXPECT_GT(finished, 5);
  }
}

TEST(GrammarTest, AForbiddenTokenIsRefusedAndACopyStaysUsable) {
  const auto tokenizer = test::small_tokenizer("bpe");
  const auto compiler = GrammarCompiler::create(*tokenizer);
  auto grammar = compiler->compile(GrammarKind::kRegex, "[0-9]{2}");
  ASSERT_TRUE(grammar.ok());
  auto copy = grammar->copy();
  ASSERT_TRUE(copy.ok());
  EXPECT_FALSE(grammar->accept(tokenizer->find_token("x")).ok());
  EXPECT_FALSE(grammar->accept(tokenizer->find_token("7")).ok());
  EXPECT_TRUE(copy->accept(tokenizer->find_token("7")).ok());
  EXPECT_FALSE(*copy->may_end());
  EXPECT_FALSE(copy->accept(-1).ok());
}

TEST(GrammarTest, BadGrammarsNameTheirFault) {
  const auto tokenizer = test::small_tokenizer("bpe");
  const auto compiler = GrammarCompiler::create(*tokenizer);
  const auto message = [&](GrammarKind kind, std::string_view source) {
    const auto grammar = compiler->compile(kind, source);
    return grammar.ok() ? std::string("accepted") : grammar.error().message;
  };
  EXPECT_THAT(message(GrammarKind::kJsonSchema, "{"), HasSubstr("schema"));
  EXPECT_THAT(message(GrammarKind::kJsonSchema, R"({"type": "nonsense"})"), HasSubstr("nonsense"));
  EXPECT_THAT(message(GrammarKind::kLark, "start: missing"), HasSubstr("missing"));
  EXPECT_THAT(message(GrammarKind::kRegex, "("), HasSubstr("grammar"));
  EXPECT_THAT(message(GrammarKind::kJsonSchema, std::string(100000, '[')), HasSubstr("schema"));
}

}  // namespace
}  // namespace ikv
