// What a session re-uses: next turn, regenerated reply, edited middle, fork, salts.
#include <gtest/gtest.h>
#include <unistd.h>

#include "engine_fixture.h"

namespace ikv::testing {
namespace {

constexpr int kBlock = 32;

TEST(EngineSessionTest, NextTurnEvaluatesOnlyWhatIsNewPlusAPage) {
  const auto engine = tiny_engine();
  std::vector<Message> messages = {message(Role::kSystem, filler(60, 1))};
  int32_t stored = 0;  // tokens of prompt and reply so far
  for (unsigned turn = 0; turn < 6; ++turn) {
    messages.push_back(message(Role::kUser, filler(20, 10 + turn)));
    const GenerationResult result = run_chat(*engine, chat_request(messages, 12));
    EXPECT_EQ(result.usage.completion_tokens, 12);
    const int32_t fresh = result.usage.prompt_tokens - stored;
    EXPECT_LE(result.usage.evaluated_tokens, fresh + kBlock) << turn;
    stored = result.usage.prompt_tokens + 12;
    messages.push_back(result.message);
  }
}

TEST(EngineSessionTest, AReplyIsNotEvaluatedAgainAtTheNextTurn) {
  const auto engine = tiny_engine();
  std::vector<Message> messages = {message(Role::kUser, filler(100, 3))};
  const GenerationResult first = run_chat(*engine, chat_request(messages, 40));
  messages.push_back(first.message);
  messages.push_back(message(Role::kUser, "go on"));
  const GenerationResult second = run_chat(*engine, chat_request(messages, 4));
  EXPECT_TRUE(second.usage.divergences.empty());
  // All but the reply's last token, which was never evaluated, and what the template adds.
  EXPECT_GE(second.usage.cached_tokens, first.usage.prompt_tokens + 39);
  EXPECT_EQ(second.session_id, first.session_id);
}

TEST(EngineSessionTest, RegeneratingGivesTheSameGreedyReply) {
  const auto engine = tiny_engine();
  const std::vector<Message> messages = {message(Role::kUser, filler(70, 4))};
  const GenerationResult first = run_chat(*engine, chat_request(messages, 30, "s"));
  const GenerationResult again = run_chat(*engine, chat_request(messages, 30, "s"));
  EXPECT_EQ(first.text, again.text);
  EXPECT_GT(again.usage.cached_tokens, 0);
}

TEST(EngineSessionTest, AnEditedMiddleKeepsThePrefixAndReportsWhereItDiffers) {
  const auto engine = tiny_engine();
  std::vector<Message> messages = {message(Role::kSystem, filler(100, 5)),
                                   message(Role::kUser, filler(50, 6))};
  messages.push_back(run_chat(*engine, chat_request(messages, 8, "s")).message);
  messages.push_back(message(Role::kUser, filler(30, 7)));
  run_chat(*engine, chat_request(messages, 8, "s"));
  messages[1].content->replace(40, 3, "???");
  const GenerationResult edited = run_chat(*engine, chat_request(messages, 8, "s"));
  ASSERT_EQ(edited.usage.divergences.size(), 1u);
  EXPECT_EQ(edited.usage.divergences[0].message, 1);
  EXPECT_EQ(edited.usage.divergences[0].character, 40);
  EXPECT_GE(edited.usage.cached_tokens, 96);  // the system prompt's whole blocks

  const auto fresh = tiny_engine();
  EXPECT_EQ(run_chat(*fresh, chat_request(messages, 8)).text, edited.text);
}

TEST(EngineSessionTest, AForkSharesAndGoesItsOwnWay) {
  const auto engine = tiny_engine();
  std::vector<Message> messages = {message(Role::kUser, filler(100, 8))};
  const GenerationResult first = run_chat(*engine, chat_request(messages, 20, "trunk"));
  ASSERT_TRUE(engine->fork_session("trunk", "branch").ok());
  messages.push_back(first.message);
  std::vector<Message> other = messages;
  messages.push_back(message(Role::kUser, "left"));
  other.push_back(message(Role::kUser, "right"));
  const GenerationResult left = run_chat(*engine, chat_request(messages, 10, "trunk"));
  const GenerationResult right = run_chat(*engine, chat_request(other, 10, "branch"));
  EXPECT_GT(left.usage.cached_tokens, 100);
  EXPECT_GT(right.usage.cached_tokens, 100);
  EXPECT_FALSE(engine->fork_session("nobody", "x").ok());
  EXPECT_FALSE(engine->fork_session("trunk", "branch").ok());
}

TEST(EngineSessionTest, EqualPrefixesAreSharedBetweenSessionsButNotAcrossSalts) {
  const auto engine = tiny_engine();
  const std::string system = filler(200, 9);
  const auto ask = [&](const char* session, const char* salt, unsigned seed) {
    ChatRequest request = chat_request(
        {message(Role::kSystem, system), message(Role::kUser, filler(10, seed))}, 4, session);
    request.cache_salt = salt;
    return run_chat(*engine, std::move(request)).usage.cached_tokens;
  };
  EXPECT_EQ(ask("a", "", 1), 0);
  EXPECT_GE(ask("b", "", 2), 192);
  EXPECT_EQ(ask("a", "other tenant", 3), 0);
  EXPECT_GE(ask("c", "other tenant", 4), 192);
}

TEST(EngineSessionTest, StopStringsEndReplyAndSessionAtTheSamePlace) {
  const auto engine = tiny_engine();
  std::vector<Message> messages = {message(Role::kUser, filler(40, 11))};
  const GenerationResult whole = run_chat(*engine, chat_request(messages, 40));
  // A random model's text is partly broken UTF-8: a stop string must not be.
  size_t place = 2;
  while (place < whole.text.size() && !(whole.text[place] > ' ' && whole.text[place] < 127))
    ++place;
  ASSERT_LT(place, whole.text.size());
  ChatRequest request = chat_request(messages, 40);
  const std::string stop = whole.text.substr(place, 1);
  request.generation.stop = {stop};
  const GenerationResult cut = run_chat(*engine, std::move(request));
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(stop)));
  EXPECT_EQ(cut.finish_reason, FinishReason::kStop);
  messages.push_back(cut.message);
  messages.push_back(message(Role::kUser, "more"));
  const GenerationResult next = run_chat(*engine, chat_request(messages, 4));
  EXPECT_TRUE(next.usage.divergences.empty());
  EXPECT_EQ(next.usage.completion_tokens, 4);
}

TEST(EngineSessionTest, SessionsAreListedAndClosed) {
  const auto engine = tiny_engine();
  run_chat(*engine, chat_request({message(Role::kUser, "hello")}, 2, "mine"));
  const auto sessions = engine->sessions();
  ASSERT_EQ(sessions.size(), 1u);
  EXPECT_EQ(sessions[0].id, "mine");
  EXPECT_EQ(sessions[0].num_messages, 2);
  EXPECT_TRUE(engine->close_session("mine").ok());
  EXPECT_FALSE(engine->close_session("mine").ok());
  EXPECT_TRUE(engine->sessions().empty());
}

}  // namespace
}  // namespace ikv::testing
