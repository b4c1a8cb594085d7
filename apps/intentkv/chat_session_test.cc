// The conversation's bookkeeping, on an engine that answers without a model.
#include "chat_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reply_interrupt.h"

namespace ikv {
namespace {

using ::testing::HasSubstr;

// Gives the words of a text one event at a time; `endless` repeats them until it is cancelled.
class FakeGeneration : public Generation {
 public:
  FakeGeneration(std::vector<std::string> words, bool endless)
      : words_(std::move(words)), endless_(endless) {}

  Result<GenerationEvent> next() override {
    GenerationEvent event;
    if (endless_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    event.text = words_[position_++ % words_.size()];
    text_ += event.text;
    event.finished = cancelled_ || (!endless_ && position_ == words_.size());
    return event;
  }
  Result<GenerationResult> wait() override {
    GenerationResult result;
    result.text = text_;
    result.message.role = Role::kAssistant;
    result.message.content = text_;
    result.finish_reason = cancelled_ ? FinishReason::kCancelled : FinishReason::kStop;
    result.usage.prompt_tokens = 40;
    result.usage.cached_tokens = 30;
    result.usage.evaluated_tokens = 10;
    return result;
  }
  void cancel() override { cancelled_ = true; }
  bool finished() const override { return cancelled_; }

 private:
  std::vector<std::string> words_;
  bool endless_;
  size_t position_ = 0;
  std::string text_;
  std::atomic<bool> cancelled_{false};
};

class FakeEngine : public Engine {
 public:
  Result<std::shared_ptr<Generation>> chat(ChatRequest request, EventCallback) override {
    requests.push_back(std::move(request));
    if (refuse) return make_error(ErrorCode::kContextExceeded, "too long");
    return std::shared_ptr<Generation>(
        std::make_shared<FakeGeneration>(std::vector<std::string>{"fine", ", thanks"}, endless));
  }
  Result<std::shared_ptr<Generation>> complete(CompletionRequest, EventCallback) override {
    return unsupported("not in this test");
  }
  std::vector<int32_t> tokenize(const std::string&, bool, bool) const override { return {}; }
  Result<std::string> detokenize(const std::vector<int32_t>&) const override {
    return std::string();
  }
  Result<std::string> apply_template(const ChatRequest&) const override { return std::string(); }
  std::vector<SessionInfo> sessions() const override { return {}; }
  Status fork_session(const std::string&, const std::string&) override { return {}; }
  Status close_session(const std::string&) override { return {}; }
  ModelInfo model_info() const override { return {}; }
  EngineStats stats() const override {
    EngineStats stats;
    stats.prompt_tokens_cached = 77;
    return stats;
  }

  std::vector<ChatRequest> requests;
  bool refuse = false;
  bool endless = false;
};

Message user(std::string text) {
  Message message;
  message.content = std::move(text);
  return message;
}

class Chat : public ::testing::Test {
 protected:
  std::string ask(const std::string& text) {
    session_.add(user(text));
    std::string streamed;
    Result<GenerationResult> result = session_.reply([&](std::string_view t) { streamed += t; });
    return result.ok() ? streamed : "error: " + result.error().message;
  }
  std::string command(const std::string& line) {
    Result<std::string> shown = session_.run_command(line);
    return shown.ok() ? *shown : "error: " + shown.error().message;
  }
  FakeEngine engine_;
  ChatSession session_{engine_, GenerationConfig(), Conversation(), /*interruptible=*/false};
};

TEST_F(Chat, EveryRequestCarriesTheWholeConversation) {
  EXPECT_EQ(ask("How are you?"), "fine, thanks");
  EXPECT_EQ(ask("Still?"), "fine, thanks");
  ASSERT_EQ(engine_.requests.size(), 2u);
  ASSERT_EQ(engine_.requests[1].messages.size(), 3u);
  EXPECT_EQ(engine_.requests[1].messages[1].role, Role::kAssistant);
  EXPECT_EQ(engine_.requests[1].messages[1].content, "fine, thanks");
  EXPECT_EQ(session_.conversation().messages.size(), 4u);
}

TEST_F(Chat, ARefusedReplyLeavesTheConversationToTheCaller) {
  engine_.refuse = true;
  EXPECT_EQ(ask("How are you?"), "error: too long");
  EXPECT_EQ(session_.conversation().messages.size(), 1u);
  session_.drop_last();
  EXPECT_TRUE(session_.conversation().messages.empty());
}

TEST_F(Chat, ResetKeepsTheSystemPrompt) {
  EXPECT_THAT(command("/system"), HasSubstr("no system prompt"));
  EXPECT_THAT(command("/system   Be terse."), HasSubstr("set"));
  ask("How are you?");
  command("/reset");
  ASSERT_EQ(session_.conversation().messages.size(), 1u);
  EXPECT_EQ(command("/system"), "Be terse.");
}

TEST_F(Chat, StatsShowTheEnginesCountersAndTheLastReply) {
  EXPECT_THAT(command("/stats"), HasSubstr("from the cache 77"));
  ask("How are you?");
  EXPECT_THAT(command("/stats"), HasSubstr("prompt 40 tokens: 30 cached, 10 evaluated"));
}

TEST_F(Chat, SaveWritesWhatLoadReads) {
  const std::string path = ::testing::TempDir() + "chat." + std::to_string(getpid()) + ".json";
  ask("How are you?");
  EXPECT_THAT(command("/save " + path), HasSubstr("2 messages"));
  Result<Conversation> loaded = load_conversation(path);
  std::remove(path.c_str());
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->messages[1].content, "fine, thanks");
}

TEST_F(Chat, WrongCommandsAreNamed) {
  EXPECT_THAT(command("/nonsense"), HasSubstr("error: unknown command /nonsense"));
  EXPECT_THAT(command("/save"), HasSubstr("error: /save needs"));
  EXPECT_THAT(command("/save /nonexistent/x"), HasSubstr("error: cannot write"));
  EXPECT_THAT(command("/reset now"), HasSubstr("error: /reset takes nothing"));
  EXPECT_FALSE(session_.quitting());
  command("/quit");
  EXPECT_TRUE(session_.quitting());
}

TEST(ChatInterrupt, CtrlCStopsTheReplyAndKeepsWhatCame) {
  block_reply_interrupts();
  FakeEngine engine;
  engine.endless = true;
  ChatSession session(engine, GenerationConfig(), Conversation(), /*interruptible=*/true);
  session.add(user("Count."));
  int pieces = 0;
  Result<GenerationResult> result = session.reply([&](std::string_view) {
    if (++pieces == 5) kill(getpid(), SIGINT);
  });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->finish_reason, FinishReason::kCancelled);
  EXPECT_GE(pieces, 5);
  ASSERT_EQ(session.conversation().messages.size(), 2u);
  EXPECT_THAT(*session.conversation().messages[1].content, HasSubstr("fine, thanks"));
}

}  // namespace
}  // namespace ikv
