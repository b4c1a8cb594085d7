#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "text/test_vocab.h"
#include "text/utf8.h"

namespace ikv {
namespace {

using test::golden_text;
using test::load_golden;
using test::small_spec;
using test::small_tokenizer;
using ::testing::HasSubstr;

std::string printable(const std::string& text) {
  return testing::PrintToString(text);
}

void expect_golden_ids(const Tokenizer& tokenizer, const nlohmann::json& texts,
                       const nlohmann::json& ids, const std::string& name) {
  int compared = 0;
  for (bool parse_special : {false, true}) {
    const nlohmann::json& expected = ids.at(parse_special ? "special" : "plain");
    for (size_t i = 0; i < texts.size(); ++i, ++compared) {
      const std::string text = golden_text(texts[i]);
      const auto tokens = tokenizer.encode(text, parse_special);
      ASSERT_TRUE(tokens.ok()) << tokens.error().message;
      EXPECT_EQ(*tokens, expected[i].get<std::vector<TokenId>>())
          << name << " special=" << parse_special << " text " << printable(text);
    }
  }
  EXPECT_GT(compared, 400);
}

TEST(TokenizerTest, SmallVocabulariesGiveLlamaCppsIds) {
  const nlohmann::json golden = load_golden("tokenizer_small.json");
  for (const std::string name : {"smollm", "gpt-2", "qwen2", "llama-bpe", "default"}) {
    TokenizerSpec spec = small_spec(golden, "bpe");
    spec.pre_tokenizer = name;
    const auto tokenizer = Tokenizer::create(spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    expect_golden_ids(**tokenizer, golden["texts"], golden["ids"][name], name);
  }
  for (const std::string name : {"spm", "spm-no-prefix"}) {
    TokenizerSpec spec = small_spec(golden, "spm");
    spec.add_space_prefix = name == "spm";
    const auto tokenizer = Tokenizer::create(spec);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    expect_golden_ids(**tokenizer, golden["texts"], golden["ids"][name], name);
  }
}

TEST(TokenizerTest, OffsetsTileTheTextAndNameEachTokensBytes) {
  const nlohmann::json golden = load_golden("tokenizer_small.json");
  for (const std::string key : {"bpe", "spm"}) {
    const auto tokenizer = small_tokenizer(key);
    ASSERT_NE(tokenizer, nullptr);
    for (const auto& value : golden["texts"]) {
      const std::string text = golden_text(value);
      const auto encoding = tokenizer->encode_with_offsets(text);
      ASSERT_TRUE(encoding.ok());
      if (encoding->tokens.empty()) continue;
      EXPECT_EQ(encoding->ends.back(), text.size()) << printable(text);
      if (utf8_repair(text) != text) continue;
      uint64_t begin = 0;
      bool after_special = true;
      for (size_t i = 0; i < encoding->tokens.size(); ++i) {
        std::string piece(tokenizer->token_bytes(encoding->tokens[i]));
        if (key == "spm" && after_special) piece.erase(0, piece.find(' ') == 0 ? 1 : 0);
        const bool special = tokenizer->is_special(encoding->tokens[i]);
        if (key == "bpe" || special || tokenizer->token_bytes(encoding->tokens[i]).size() > 1) {
          EXPECT_EQ(text.substr(begin, encoding->ends[i] - begin), piece) << printable(text);
        }
        after_special = special;
        begin = encoding->ends[i];
      }
    }
  }
}

TEST(TokenizerTest, DecodingReturnsTheText) {
  const nlohmann::json golden = load_golden("tokenizer_small.json");
  const auto tokenizer = small_tokenizer("bpe");
  ASSERT_NE(tokenizer, nullptr);
  for (const auto& value : golden["texts"]) {
    const std::string text = golden_text(value);
    if (utf8_repair(text) != text) continue;
    const auto tokens = tokenizer->encode(text, false);
    ASSERT_TRUE(tokens.ok());
    EXPECT_EQ(*tokenizer->decode(*tokens), text);
  }
}

TEST(TokenizerTest, ControlTokensInLiteralRangesAreText) {
  const auto tokenizer = small_tokenizer("bpe");
  const std::string text = "a<|im_end|>b<|im_end|>";
  const TokenId end = tokenizer->find_token("<|im_end|>");
  ASSERT_GE(end, 0);
  const auto count = [&](std::vector<ByteRange> literal) {
    const auto encoding = tokenizer->encode_with_offsets(text, literal);
    return std::count(encoding->tokens.begin(), encoding->tokens.end(), end);
  };
  EXPECT_EQ(count({}), 2);
  EXPECT_EQ(count({{0, 12}}), 1);
  EXPECT_EQ(count({{0, 2}, {21, 22}}), 0);
  EXPECT_EQ(count({{0, 1}, {11, 12}}), 2);
  // A user-defined token is text that models learnt as one token; it is no control.
  const TokenId call = tokenizer->find_token("<tool_call>");
  const auto encoding =
      tokenizer->encode_with_offsets("<tool_call>", std::vector<ByteRange>{{0, 11}});
  EXPECT_EQ(encoding->tokens, std::vector<TokenId>{call});
}

TEST(TokenizerTest, MarkedTextHoldsNoControlToken) {
  const auto tokenizer = small_tokenizer("bpe");
  const auto marked = tokenizer->mark_control_tokens("é<|im_<|im_end|>x<|im_start|>", "*");
  ASSERT_TRUE(marked.ok());
  EXPECT_EQ(*marked, "é<|im_<*|im_end|>x<*|im_start|>");
}

TEST(TokenizerTest, KnowsControlAndEndTokens) {
  const auto tokenizer = small_tokenizer("bpe");
  EXPECT_TRUE(tokenizer->is_end_of_generation(tokenizer->find_token("<|im_end|>")));
  EXPECT_TRUE(tokenizer->is_end_of_generation(tokenizer->find_token("<|endoftext|>")));
  EXPECT_FALSE(tokenizer->is_end_of_generation(tokenizer->find_token("<|im_start|>")));
  EXPECT_TRUE(tokenizer->is_control(tokenizer->find_token("<|im_start|>")));
  EXPECT_FALSE(tokenizer->is_control(tokenizer->find_token("<tool_call>")));
  EXPECT_TRUE(tokenizer->is_special(tokenizer->find_token("<tool_call>")));
  for (TokenId bad : {-1, -100, tokenizer->vocab_size(), INT32_MAX}) {
    EXPECT_FALSE(tokenizer->is_control(bad));
    EXPECT_FALSE(tokenizer->is_end_of_generation(bad));
    EXPECT_EQ(tokenizer->token_bytes(bad), "");
    EXPECT_FALSE(tokenizer->decode(std::vector<TokenId>{bad}).ok());
  }
}

TEST(TokenizerTest, RefusesWhatItDoesNotKnowByName) {
  const nlohmann::json golden = load_golden("tokenizer_small.json");
  TokenizerSpec spec = small_spec(golden, "bpe");
  spec.pre_tokenizer = "deepseek-llm";
  auto refused = Tokenizer::create(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("'deepseek-llm'"));
  EXPECT_THAT(refused.error().message, HasSubstr("smollm, gpt-2, qwen2, llama-bpe, default"));
  spec.model = "bert";
  refused = Tokenizer::create(spec);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("'bert'"));
}

TEST(TokenizerTest, RefusesContradictoryVocabularies) {
  const nlohmann::json golden = load_golden("tokenizer_small.json");
  const auto message = [](TokenizerSpec spec) {
    const auto tokenizer = Tokenizer::create(std::move(spec));
    return tokenizer.ok() ? std::string("accepted") : tokenizer.error().message;
  };
  TokenizerSpec spec = small_spec(golden, "bpe");
  spec.merges.push_back("nonsense");
  EXPECT_THAT(message(spec), HasSubstr("is not two tokens"));
  spec.merges.back() = "a \xF0\x9F\x98\x80";
  EXPECT_THAT(message(spec), HasSubstr("which the vocabulary lacks"));
  spec.merges.back() = "\xFF \xFE";
  EXPECT_THAT(message(spec), HasSubstr("not valid UTF-8"));
  spec = small_spec(golden, "bpe");
  spec.types.pop_back();
  EXPECT_THAT(message(spec), HasSubstr("token types"));
  spec = small_spec(golden, "bpe");
  spec.eos = 100000;
  EXPECT_THAT(message(spec), HasSubstr("outside the vocabulary"));
  spec = small_spec(golden, "bpe");
  spec.tokens[5] = "\xC3";
  EXPECT_THAT(message(spec), HasSubstr("token 5 is not valid UTF-8"));
  spec = TokenizerSpec();
  spec.model = "gpt2";
  spec.pre_tokenizer = "gpt-2";
  EXPECT_THAT(message(spec), HasSubstr("empty"));
  spec = small_spec(golden, "spm");
  spec.scores.clear();
  EXPECT_THAT(message(spec), HasSubstr("scores"));
  spec = small_spec(golden, "spm");
  spec.scores[300] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(message(spec), HasSubstr("not a number"));
}

TEST(TokenizerTest, LongRunsTakeLinearTime) {
  for (const std::string key : {"bpe", "spm"}) {
    const auto tokenizer = small_tokenizer(key);
    for (const std::string unit : {" ", "a", "\n", "\xFF", "<|im_end|", "\xF0\x9F\x98\x80"}) {
      std::string text;
      while (text.size() < 1 << 20) text += unit;
      const auto tokens = tokenizer->encode(text + "x", true);
      ASSERT_TRUE(tokens.ok()) << tokens.error().message;
      EXPECT_FALSE(tokens->empty());
    }
  }
}

TEST(TokenizerTest, ThreadsGetTheSameTokens) {
  const auto tokenizer = small_tokenizer("bpe");
  const std::string text = "Many threads, one vocabulary: 你好 <|im_end|> 12345";
  const auto expected = *tokenizer->encode(text, true);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += *tokenizer->encode(text, true) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace ikv
