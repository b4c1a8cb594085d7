#include "session/transcript.h"

#include <gtest/gtest.h>

#include <numeric>

namespace ikv {
namespace {

// A toy template and tokenizer: every byte of a content is one token; role markers are negative.
constexpr TokenId kBos = 1000;
constexpr TokenId kStart = 1001;
constexpr TokenId kEnd = 1002;

void push(TokenizedChat& chat, std::vector<TokenId> tokens, int message, Role role, SpanPart part) {
  const auto begin = static_cast<LogicalPos>(chat.tokens.size());
  chat.tokens.insert(chat.tokens.end(), tokens.begin(), tokens.end());
  const auto end = static_cast<LogicalPos>(chat.tokens.size());
  if (begin < end) chat.spans.push_back({begin, end, message, role, part, false});
}

TokenizedChat render(const std::vector<Message>& messages, bool prompt, TokenId tools = 7) {
  TokenizedChat chat;
  push(chat, {kBos, tools}, -1, Role::kSystem, SpanPart::kHeader);
  for (size_t m = 0; m < messages.size(); ++m) {
    const int index = static_cast<int>(m);
    const Role role = messages[m].role;
    std::string text = messages[m].content.value_or("");
    for (const ToolCall& call : messages[m].tool_calls) text += call.name + call.arguments_json;
    push(chat, {kStart, 2000 + static_cast<TokenId>(role)}, index, role, SpanPart::kHeader);
    push(chat, {text.begin(), text.end()}, index, role, SpanPart::kContent);
    push(chat, {kEnd}, index, role, SpanPart::kFooter);
  }
  if (prompt) {
    push(chat, {kStart, 2000 + static_cast<TokenId>(Role::kAssistant)},
         static_cast<int>(messages.size()), Role::kAssistant, SpanPart::kHeader);
  }
  return chat;
}

Message say(Role role, std::string text) {
  return {role, std::move(text), "", {}, ""};
}

// A session after the model replied to `messages` with `reply`, whose tokens are one per two bytes,
// i.e. split unlike the toy tokenizer would.
Transcript after_reply(std::vector<Message> messages, const Message& reply,
                       const std::vector<TokenId>& tokens) {
  Transcript transcript{messages, render(messages, true)};
  append_reply(transcript, tokens, static_cast<int32_t>(messages.size()));
  transcript.messages.push_back(reply);
  return transcript;
}

const std::vector<TokenId> kReplyTokens = {501, 502, 503};

class TranscriptMatching : public ::testing::Test {
 protected:
  std::vector<Message> history_ = {say(Role::kSystem, "sys"), say(Role::kUser, "hello")};
  Message reply_ = say(Role::kAssistant, "hi you");
  Transcript stored_ = after_reply(history_, reply_, kReplyTokens);
};

TEST_F(TranscriptMatching, NextTurnReusesAllStoredTokensThoughTheReplyWouldTokeniseDifferently) {
  std::vector<Message> next = history_;
  next.push_back(reply_);
  next.push_back(say(Role::kUser, "more"));
  const auto match = match_transcript(stored_, next, render(next, true));
  EXPECT_EQ(match.num_common, static_cast<LogicalPos>(stored_.chat.tokens.size()));
  EXPECT_FALSE(match.divergence.has_value());
  // stored + footer + header, 4 content, footer + generation prompt
  EXPECT_EQ(match.chat.tokens.size(), stored_.chat.tokens.size() + 1 + 2 + 4 + 1 + 2);
  EXPECT_EQ(match.chat.tokens[stored_.chat.tokens.size()], kEnd);
  LogicalPos expected_begin = 0;
  for (const Span& span : match.chat.spans) {
    EXPECT_EQ(span.begin, expected_begin);
    expected_begin = span.end;
  }
  EXPECT_EQ(expected_begin, static_cast<LogicalPos>(match.chat.tokens.size()));
}

TEST_F(TranscriptMatching, RegeneratingKeepsEverythingUpToTheGenerationPrompt) {
  const auto match = match_transcript(stored_, history_, render(history_, true));
  EXPECT_EQ(match.num_common + 3, static_cast<LogicalPos>(stored_.chat.tokens.size()));
  EXPECT_EQ(match.chat.tokens.size(), static_cast<size_t>(match.num_common));
  ASSERT_TRUE(match.divergence.has_value());
  EXPECT_EQ(match.divergence->what, "missing");
  EXPECT_EQ(match.divergence->lost_tokens, 3);
}

TEST_F(TranscriptMatching, EditedMiddleKeepsThePrefixAndNamesMessageAndCharacter) {
  std::vector<Message> next = history_;
  next[1].content = "help!";
  const auto match = match_transcript(stored_, next, render(next, true));
  ASSERT_TRUE(match.divergence.has_value());
  EXPECT_EQ(match.divergence->message, 1);
  EXPECT_EQ(match.divergence->character, 3);
  EXPECT_EQ(match.divergence->what, "content");
  EXPECT_EQ(match.num_common, 2 + 2 + 3 + 1 + 2 + 3);  // up to "hel"
  EXPECT_EQ(match.chat.tokens, render(next, true).tokens);
}

TEST_F(TranscriptMatching, ReSerialisedToolArgumentsAreTheSameMessage) {
  Message call = say(Role::kAssistant, "");
  call.tool_calls = {{"call_1", "search", R"({"a": 1, "b": [2]})"}};
  stored_ = after_reply(history_, call, kReplyTokens);
  std::vector<Message> next = history_;
  call.content.reset();
  call.tool_calls[0].arguments_json = R"({"b":[2],"a":1})";
  next.push_back(call);
  next.push_back(say(Role::kTool, "result"));
  const auto match = match_transcript(stored_, next, render(next, true));
  EXPECT_EQ(match.num_common, static_cast<LogicalPos>(stored_.chat.tokens.size()));
  EXPECT_FALSE(match.divergence.has_value());

  next[2].tool_calls[0].arguments_json = R"({"b":[3],"a":1})";
  const auto other = match_transcript(stored_, next, render(next, true));
  ASSERT_TRUE(other.divergence.has_value());
  EXPECT_EQ(other.divergence->what, "tool_calls");
}

TEST_F(TranscriptMatching, ChangedToolsDivergeInTheTemplatesOwnText) {
  std::vector<Message> next = history_;
  const auto match = match_transcript(stored_, next, render(next, true, 8));
  EXPECT_EQ(match.num_common, 1);
  ASSERT_TRUE(match.divergence.has_value());
  EXPECT_EQ(match.divergence->message, -1);
  EXPECT_EQ(match.divergence->what, "template");
}

TEST_F(TranscriptMatching, AnEmptySessionMatchesNothing) {
  const auto match = match_transcript({}, history_, render(history_, true));
  EXPECT_EQ(match.num_common, 0);
  EXPECT_FALSE(match.divergence.has_value());
  EXPECT_EQ(match.chat.tokens, render(history_, true).tokens);
}

TEST_F(TranscriptMatching, TruncatingRemovesCutMessagesAndTheirSpans) {
  const auto whole = stored_.chat.tokens.size();
  truncate_transcript(stored_, static_cast<LogicalPos>(whole) - 1);
  EXPECT_EQ(stored_.messages.size(), 2u);
  EXPECT_EQ(stored_.chat.spans.back().end, static_cast<LogicalPos>(whole) - 1);
  truncate_transcript(stored_, 4);
  EXPECT_EQ(stored_.messages.size(), 0u);
  EXPECT_EQ(stored_.chat.tokens.size(), 4u);
}

}  // namespace
}  // namespace ikv
