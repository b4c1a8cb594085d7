// Conversations survive writing and reading; broken files get an error that names the place.
#include "result_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

namespace ikv {
namespace {

using ::testing::HasSubstr;

class ConversationFile : public ::testing::Test {
 protected:
  ~ConversationFile() override { std::remove(path_.c_str()); }
  Result<Conversation> load(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return load_conversation(path_);
  }
  std::string path_ = ::testing::TempDir() + "conversation." + std::to_string(getpid()) + ".json";
};

TEST_F(ConversationFile, RoundTripKeepsEveryField) {
  Conversation conversation;
  conversation.messages.resize(3);
  conversation.messages[0].content = "weather? \xE2\x98\x80";
  conversation.messages[1].role = Role::kAssistant;  // null content
  conversation.messages[1].tool_calls = {{"call_1", "weather", R"({"city":"Oslo"})"}};
  conversation.messages[2].role = Role::kTool;
  conversation.messages[2].content = "rain\n";
  conversation.messages[2].tool_call_id = "call_1";
  conversation.messages[2].name = "weather";
  conversation.tools_json = R"([{"type":"function"}])";
  ASSERT_TRUE(save_conversation(path_, conversation).ok());
  Result<Conversation> loaded = load_conversation(path_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_EQ(loaded->messages.size(), 3u);
  EXPECT_EQ(loaded->messages[0].content, conversation.messages[0].content);
  EXPECT_FALSE(loaded->messages[1].content.has_value());
  ASSERT_EQ(loaded->messages[1].tool_calls.size(), 1u);
  EXPECT_EQ(loaded->messages[1].tool_calls[0].arguments_json, R"({"city":"Oslo"})");
  EXPECT_EQ(loaded->messages[1].tool_calls[0].id, "call_1");
  EXPECT_EQ(loaded->messages[2].role, Role::kTool);
  EXPECT_EQ(loaded->messages[2].tool_call_id, "call_1");
  EXPECT_EQ(loaded->messages[2].name, "weather");
  EXPECT_EQ(loaded->tools_json, conversation.tools_json);
}

TEST_F(ConversationFile, PlainArraysAndFlatToolCallsAreRead) {
  Result<Conversation> loaded = load(
      R"([{"role":"user","content":"a"},
          {"role":"assistant","content":null,"tool_calls":[{"name":"f","arguments":{"x":1}}]}])");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->messages[1].tool_calls.at(0).name, "f");
  EXPECT_EQ(loaded->messages[1].tool_calls.at(0).arguments_json, R"({"x":1})");
}

TEST_F(ConversationFile, FaultsNameTheFileAndThePlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "not a conversation in JSON"},
      {"{\"messages\": 5}", "needs an array"},
      {"[1]", "messages[0]: must be an object"},
      {R"([{"role":"user"},{"role":"boss"}])", "messages[1].role"},
      {R"([{"role":"user","content":5}])", "messages[0].content"},
      {R"([{"role":"tool","tool_call_id":5}])", "messages[0].tool_call_id"},
      {R"([{"role":"assistant","tool_calls":[{}]}])", "messages[0].tool_calls"},
      {R"([{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls"},
      {R"({"messages":[],"tools":{}})", "tools: must be an array"},
      {"[{\"role\":\"user\",\"content\":\"\xff\"}]", "not a conversation in JSON"}};
  for (const auto& [text, words] : cases) {
    Result<Conversation> loaded = load(text);
    ASSERT_FALSE(loaded.ok()) << text;
    EXPECT_THAT(loaded.error().message, HasSubstr(path_)) << text;
    EXPECT_THAT(loaded.error().message, HasSubstr(words)) << text;
  }
}

TEST(Conversation, MissingFilesAndFoldersAreRefused) {
  Result<Conversation> missing = load_conversation("/nonexistent/x.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent/x.json"));
  EXPECT_FALSE(load_conversation("/").ok());
  EXPECT_FALSE(save_conversation("/nonexistent/x.json", {}).ok());
}

TEST(ResultJson, BrokenTokenBytesAreGivenAsNumbers) {
  GenerationResult result;
  result.text = "x";
  SampledToken token;
  token.chosen = {5, "\xE2", -0.5f};
  token.alternatives = {{5, "\xE2", -0.5f}, {6, "b", -1.0f}};
  result.tokens.push_back(token);
  result.usage.evaluated_tokens = 10;
  result.usage.completion_tokens = 3;
  result.usage.prefill_us = 1000000;
  result.usage.decode_us = 500000;
  const nlohmann::ordered_json json = generation_to_json(result);
  EXPECT_EQ(json["tokens"], nlohmann::ordered_json::parse("[5]"));
  EXPECT_EQ(json["logprobs"][0]["bytes"], nlohmann::ordered_json::parse("[226]"));
  EXPECT_EQ(json["logprobs"][0]["top_logprobs"].size(), 2u);
  EXPECT_DOUBLE_EQ(json["timings"]["prefill_tokens_per_second"].get<double>(), 10.0);
  EXPECT_DOUBLE_EQ(json["timings"]["decode_tokens_per_second"].get<double>(), 4.0);
}

}  // namespace
}  // namespace ikv
