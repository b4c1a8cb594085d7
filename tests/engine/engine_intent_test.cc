// Stated intents, pins and drift: what a client can say of its turn, on the whole engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine_fixture.h"
#include "intentkv/audit.h"

namespace ikv::testing {
namespace {

EngineConfig intent_config(const char* attend, const char* resident) {
  EngineConfig config = tiny_config();
  config.kv_policy = "intent";
  config.kv_attend = attend;
  config.kv_resident = resident;
  return config;
}

StatedIntent booking() {
  StatedIntent intent;
  intent.name = "book_flight";
  intent.slots = {{"from", "PEK"}, {"to", "SHA"}};
  intent.plan_step = "compare the prices";
  return intent;
}

std::vector<Message> conversation() {
  return {message(Role::kUser, filler(60, 1)), message(Role::kAssistant, filler(60, 2)),
          message(Role::kUser, filler(60, 3))};
}

// Tokens and logprobs of three turns of one session.
struct Replies {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<int32_t> cached;
  uint64_t kv_bytes = 0;
  int32_t intent_tokens = 0;
};

Replies run_turns(const StatedIntent& intent) {
  const auto engine = tiny_engine(intent_config("all", "all"));
  Replies replies;
  std::vector<Message> messages;
  for (unsigned turn = 0; turn < 3; ++turn) {
    messages.push_back(message(Role::kUser, filler(40, turn)));
    ChatRequest request = chat_request(messages, 20, "s");
    request.intent = intent;
    request.generation.num_logprobs = 3;
    request.generation.temperature = 0.9f;
    request.generation.seed = 5;
    const GenerationResult result = run_chat(*engine, request);
    for (const SampledToken& token : result.tokens) {
      replies.tokens.push_back(token.chosen.token);
      replies.logprobs.push_back(token.chosen.logprob);
      for (const TokenLogprob& other : token.alternatives) {
        replies.logprobs.push_back(other.logprob);
      }
    }
    replies.cached.push_back(result.usage.cached_tokens);
    replies.intent_tokens += result.usage.kv.intent_tokens;
    messages.push_back(result.message);
  }
  replies.kv_bytes = engine->stats().kv_used_bytes;
  return replies;
}

TEST(EngineIntentTest, AStatedIntentLeavesNoTrace) {
  const Replies without = run_turns({});
  const Replies with = run_turns(booking());
  EXPECT_EQ(without.intent_tokens, 0);
  EXPECT_GT(with.intent_tokens, 3 * 10);
  EXPECT_EQ(with.tokens, without.tokens);
  EXPECT_EQ(with.logprobs, without.logprobs);  // to the bit
  EXPECT_EQ(with.cached, without.cached);
  EXPECT_EQ(with.kv_bytes, without.kv_bytes);
}

TEST(EngineIntentTest, ASideBranchDoesNotTouchTheOthersOfItsBatch) {
  const auto reply_beside = [](bool stated) {
    const auto engine = tiny_engine(intent_config("all", "30%"));
    ChatRequest first = chat_request({message(Role::kUser, filler(300, 8))}, 30, "a");
    ChatRequest second = chat_request({message(Role::kUser, filler(300, 9))}, 30, "b");
    if (stated) first.intent = booking();
    auto one = engine->chat(first);
    auto two = engine->chat(second);
    EXPECT_TRUE(one.ok() && two.ok());
    EXPECT_TRUE((*one)->wait().ok());
    auto result = (*two)->wait();
    EXPECT_TRUE(result.ok());
    return result->text;
  };
  EXPECT_EQ(reply_beside(true), reply_beside(false));
}

TEST(EngineIntentTest, WhatIsStatedDecidesWhichPagesStayHot) {
  const auto hot_pages = [](const char* text) {
    EngineConfig config = intent_config("all", "40%");
    config.kv_intent = "stated";
    const auto engine = tiny_engine(config);
    ChatRequest request = chat_request({message(Role::kUser, filler(260, 4))}, 2);
    request.intent.text = text;
    request.audit = true;
    const GenerationResult result = run_chat(*engine, request);
    std::vector<int32_t> hot;
    for (const AuditBlock& block : result.audit->blocks) hot.push_back(block.hot_pages);
    EXPECT_GT(result.usage.kv.demoted_pages, 0);
    EXPECT_GT(result.usage.kv.intent_tokens, 0);
    return hot;
  };
  const std::vector<int32_t> flight = hot_pages("zq zq zq zq zq zq zq zq zq");
  EXPECT_EQ(flight, hot_pages("zq zq zq zq zq zq zq zq zq"));
  EXPECT_NE(flight, hot_pages("ab cd ef gh ij kl mn op qr"));
}

TEST(EngineIntentTest, AnIntentThatCannotBeReadIsNamed) {
  const auto engine = tiny_engine(intent_config("all", "50%"));
  ChatRequest request = chat_request(conversation(), 4, "s");
  request.intent.text = filler(200, 1);  // a chunk has 64 tokens
  auto refused = engine->chat(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("at most 64"), std::string::npos);
  request.intent = {};
  request.intent.slots = {{"", "PEK"}};
  refused = engine->chat(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("slot"), std::string::npos);
  request.intent = booking();
  EXPECT_EQ(run_chat(*engine, request).usage.completion_tokens, 4);
}

TEST(EngineIntentTest, PinnedMessagesStayHot) {
  const auto engine = tiny_engine(intent_config("all", "40%"));
  const auto cold_of_pinned = [&](std::vector<int32_t> pins, const char* session) {
    std::vector<Message> messages = {message(Role::kUser, filler(25, 1))};
    for (unsigned i = 0; i < 4; ++i) {
      messages.push_back(message(Role::kAssistant, filler(25, 10 + i)));
      messages.push_back(message(Role::kUser, filler(25, 20 + i)));
    }
    ChatRequest request = chat_request(messages, 2, session);
    request.cache_salt = session;
    const bool pinned = !pins.empty();
    request.pins = std::move(pins);
    request.audit = true;
    const GenerationResult result = run_chat(*engine, request);
    EXPECT_GT(result.usage.kv.demoted_pages, 0);
    EXPECT_EQ(result.usage.kv.pinned_pages > 0, pinned);
    int32_t cold = 0;
    for (const AuditSpan& span : result.audit->spans) {
      if (span.message != 3) continue;
      for (const AuditBlock& block : result.audit->blocks) {
        if (block.begin < span.end && block.end > span.begin) cold += block.cold_pages;
      }
    }
    return cold;
  };
  EXPECT_GT(cold_of_pinned({}, "free"), 0);
  EXPECT_EQ(cold_of_pinned({3}, "pinned"), 0);
}

TEST(EngineIntentTest, PinsThatCannotBeAreNamed) {
  const auto engine = tiny_engine(intent_config("all", "30%"));
  for (const int32_t pin : {3, -1}) {
    ChatRequest request = chat_request(conversation(), 4, "s");
    request.pins = {0, pin};
    const auto refused = engine->chat(request);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("no message " + std::to_string(pin)), std::string::npos);
    EXPECT_NE(refused.error().message.find("has 3"), std::string::npos);
  }
  ChatRequest request = chat_request(conversation(), 4, "s");
  request.pins = {0, 1, 2};
  const auto refused = engine->chat(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("pinned messages take"), std::string::npos);
  EXPECT_NE(refused.error().message.find("keeps only"), std::string::npos);
  request.pins = {};
  EXPECT_EQ(run_chat(*engine, request).usage.completion_tokens, 4);
}

TEST(EngineIntentTest, DriftIsReportedFromTheSecondTurnOn) {
  const auto engine = tiny_engine(intent_config("all", "all"));
  std::vector<Message> messages = {message(Role::kUser, filler(40, 1))};
  const GenerationResult first = run_chat(*engine, chat_request(messages, 4, "s"));
  EXPECT_FALSE(first.usage.kv.intent_similarity.has_value());
  messages.push_back(first.message);
  messages.push_back(message(Role::kUser, filler(40, 2)));
  const GenerationResult second = run_chat(*engine, chat_request(messages, 4, "s"));
  ASSERT_TRUE(second.usage.kv.intent_similarity.has_value());
  EXPECT_LE(*second.usage.kv.intent_similarity, 1.0 + 1e-6);
  EXPECT_GT(*second.usage.kv.intent_similarity, 0.0);
  ASSERT_TRUE(engine->fork_session("s", "t").ok());
  messages.push_back(second.message);
  messages.push_back(message(Role::kUser, filler(40, 3)));
  const GenerationResult forked = run_chat(*engine, chat_request(messages, 4, "t"));
  EXPECT_TRUE(forked.usage.kv.intent_similarity.has_value());
}

TEST(EngineIntentTest, BadNamesOfScorersAndSourcesAreNamedAtStart) {
  EngineConfig config = intent_config("all", "50%");
  config.kv_page_scorer = "guess";
  auto refused = Engine::create(config);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("guess"), std::string::npos);
  config = intent_config("all", "50%");
  config.kv_intent = "wish";
  refused = Engine::create(config);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("wish"), std::string::npos);
}

TEST(EngineIntentTest, EveryDigestScorerAndSourceRunsInTheEngine) {
  for (const char* scorer : {"moment", "dot", "cosine", "box", "minmax", "lexical", "lru"}) {
    for (const char* source : {"span", "memory", "first"}) {
      EngineConfig config = intent_config("all", "40%");
      config.kv_page_scorer = scorer;
      config.kv_intent = source;
      const auto engine = tiny_engine(config);
      std::vector<Message> messages = {message(Role::kUser, filler(220, 1))};
      const GenerationResult first = run_chat(*engine, chat_request(messages, 10, "s"));
      EXPECT_GT(first.usage.kv.demoted_pages, 0) << scorer;
      messages.push_back(first.message);
      messages.push_back(message(Role::kUser, filler(60, 2)));
      const GenerationResult second = run_chat(*engine, chat_request(messages, 4, "s"));
      EXPECT_EQ(second.usage.completion_tokens, 4) << scorer;
    }
  }
}

}  // namespace
}  // namespace ikv::testing
