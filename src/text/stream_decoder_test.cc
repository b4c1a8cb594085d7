#include "text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "text/test_vocab.h"
#include "text/utf8.h"

namespace ikv {
namespace {

TEST(Utf8Test, FindsBrokenPartsAsTheStandardRecommends) {
  EXPECT_EQ(utf8_repair("a\xE2\x82z"), "a\xEF\xBF\xBDz");
  EXPECT_EQ(utf8_repair("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(utf8_repair("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // surrogate
  EXPECT_EQ(utf8_repair("\xC0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD");                  // overlong
  EXPECT_EQ(utf8_repair("\xF4\x90\x80\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(StreamDecoderTest, JoinsCharactersThatSpanTokens) {
  const auto tokenizer = test::small_tokenizer("bpe");
  ASSERT_NE(tokenizer, nullptr);
  StreamDecoder decoder(*tokenizer);
  const std::string text = "é 你好 \xF0\x9F\xA6\x80 done";
  std::string out;
  bool held_back = false;
  const std::vector<TokenId> tokens = *tokenizer->encode(text, false);
  for (TokenId token : tokens) {
    const std::string delta = decoder.push(token);
    EXPECT_EQ(utf8_repair(delta), delta);
    held_back |= decoder.pending_bytes() > 0;
    out += delta;
  }
  EXPECT_TRUE(held_back) << "the text must contain a character of several tokens";
  EXPECT_EQ(out + decoder.finish(), text);
}

TEST(StreamDecoderTest, UnfinishedCharactersBecomeReplacements) {
  const auto tokenizer = test::small_tokenizer("bpe");
  StreamDecoder decoder(*tokenizer);
  std::vector<TokenId> crab = *tokenizer->encode("\xF0\x9F\xA6\x80", false);
  ASSERT_GT(crab.size(), 1u);
  crab.pop_back();
  std::string out;
  for (TokenId token : crab) out += decoder.push(token);
  EXPECT_EQ(out, "");
  EXPECT_EQ(decoder.finish(), kReplacementCharacter);
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoderTest, ControlTokensShowOnlyOnDemand) {
  const auto tokenizer = test::small_tokenizer("bpe");
  const TokenId end = tokenizer->find_token("<|im_end|>");
  EXPECT_EQ(StreamDecoder(*tokenizer).push(end), "");
  EXPECT_EQ(StreamDecoder(*tokenizer, true).push(end), "<|im_end|>");
}

TEST(StreamDecoderTest, AnyTokensGiveValidUtf8EqualToDecodingAtOnce) {
  const auto tokenizer = test::small_tokenizer("bpe");
  std::mt19937 rng(1);
  for (int round = 0; round < 300; ++round) {
    StreamDecoder decoder(*tokenizer);
    std::vector<TokenId> tokens(rng() % 40);
    std::string out;
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(rng() % tokenizer->vocab_size());
      const std::string delta = decoder.push(token);
      ASSERT_EQ(utf8_repair(delta), delta);
      out += delta;
    }
    out += decoder.finish();
    EXPECT_EQ(out, *tokenizer->decode(tokens));
  }
}

}  // namespace
}  // namespace ikv
