// The OpenAI endpoints over real sockets, on a scripted engine.
#include <string>

#include "server_fixture.h"

namespace ikv {
namespace {

TEST_F(ServerTest, ChatCompletionHasOpenAisShape) {
  start();
  const std::string response = ask("POST", "/v1/chat/completions", kHello, "X-Session-ID: abc\r\n");
  ASSERT_EQ(status_of(response), 200) << response;
  const Json body = body_of(response);
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "fake");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "Hello, world");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 3);
  EXPECT_EQ(body["usage"]["intentkv"]["evaluated"], 7);
  EXPECT_NE(response.find("X-Session-ID: abc"), std::string::npos);
  EXPECT_NE(response.find("X-IntentKV-Pruned: 0"), std::string::npos);
  EXPECT_EQ(engine_.last_chat().session_id, "abc");
}

TEST_F(ServerTest, StreamEndsWithUsageAndDone) {
  start();
  const std::string response = ask("POST", "/v1/chat/completions",
                                   R"({"stream":true,"stream_options":{"include_usage":true},
          "messages":[{"role":"user","content":"hi"}]})");
  EXPECT_NE(response.find("text/event-stream"), std::string::npos);
  EXPECT_NE(response.find(R"("delta":{"role":"assistant","content":""})"), std::string::npos);
  EXPECT_NE(response.find(R"("delta":{"content":"Hello"})"), std::string::npos);
  EXPECT_NE(response.find(R"("finish_reason":"stop")"), std::string::npos);
  EXPECT_NE(response.find(R"("choices":[],"usage":{"prompt_tokens":10)"), std::string::npos);
  EXPECT_NE(response.find("data: [DONE]\n\n"), std::string::npos);
}

TEST_F(ServerTest, ToolCallsComeParsedWholeAndStreamed) {
  start();
  FakeScript script;
  script.pieces = {"Let me see. ", "<tool_", "call>{\"name\": \"f\", \"argu",
                   "ments\": {\"x\": 1}}</tool_call>"};
  engine_.set_script(script);
  const std::string tools =
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  const Json whole =
      body_of(ask("POST", "/v1/chat/completions", "{" + tools + "," + messages + "}"));
  const Json call = whole["choices"][0]["message"]["tool_calls"][0];
  EXPECT_EQ(call["function"]["name"], "f");
  EXPECT_EQ(Json::parse(call["function"]["arguments"].get<std::string>()), Json({{"x", 1}}));
  EXPECT_EQ(call["id"].get<std::string>().substr(0, 5), "call_");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "tool_calls");
  const std::string stream =
      ask("POST", "/v1/chat/completions", "{\"stream\":true," + tools + "," + messages + "}");
  EXPECT_EQ(stream.find("<tool_"), std::string::npos);
  EXPECT_NE(stream.find(R"("tool_calls":[{"index":0,"id":"call_)"), std::string::npos);
  EXPECT_NE(stream.find(R"("finish_reason":"tool_calls")"), std::string::npos);
}

TEST_F(ServerTest, SeveralChoicesEachEnd) {
  start();
  const Json body = body_of(ask("POST", "/v1/chat/completions",
                                R"({"n":3,"seed":7,"messages":[{"role":"user","content":"hi"}]})"));
  ASSERT_EQ(body["choices"].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["message"]["content"], "Hello, world");
  }
  EXPECT_EQ(body["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(body["usage"]["completion_tokens"], 9);
}

TEST_F(ServerTest, LogprobsAreReported) {
  start();
  const Json body = body_of(
      ask("POST", "/v1/chat/completions",
          R"({"logprobs":true,"top_logprobs":2,"messages":[{"role":"user","content":"hi"}]})"));
  const Json content = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 3u);
  EXPECT_EQ(content[0]["token"], "Hello");
  EXPECT_EQ(content[0]["bytes"].size(), 5u);
  EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
}

TEST_F(ServerTest, CompletionsTakeSeveralPromptsAndEcho) {
  start();
  const Json body = body_of(ask("POST", "/v1/completions",
                                R"({"prompt":["a","b"],"echo":true,"max_tokens":2,"logprobs":1})"));
  ASSERT_EQ(body["choices"].size(), 2u) << body;
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "aHello, ");
  EXPECT_EQ(body["choices"][1]["text"], "bHello, ");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["logprobs"]["text_offset"], Json({1, 6}));
}

TEST_F(ServerTest, EngineErrorsBecomeStatuses) {
  start();
  const auto refuse = [&](ErrorCode code) {
    FakeScript script;
    script.refuse = make_error(code, "why");
    engine_.set_script(script);
    return ask("POST", "/v1/chat/completions", kHello);
  };
  const std::string overflow = refuse(ErrorCode::kContextExceeded);
  EXPECT_EQ(status_of(overflow), 400);
  EXPECT_EQ(body_of(overflow)["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(body_of(overflow)["error"]["param"], "messages");
  const std::string busy = refuse(ErrorCode::kBusy);
  EXPECT_EQ(status_of(busy), 503);
  EXPECT_NE(busy.find("Retry-After: 1"), std::string::npos);
  EXPECT_EQ(status_of(refuse(ErrorCode::kOutOfMemory)), 503);
  EXPECT_EQ(status_of(refuse(ErrorCode::kInternal)), 500);
  EXPECT_EQ(status_of(refuse(ErrorCode::kInvalidArgument)), 400);
}

TEST_F(ServerTest, EarlyFailureOfAStreamStillHasAnErrorStatus) {
  start();
  FakeScript script;
  script.fail = make_error(ErrorCode::kContextExceeded, "too long after matching");
  engine_.set_script(script);
  EXPECT_EQ(status_of(ask("POST", "/v1/chat/completions", kHelloStream)), 400);
  script.delay_before_first_ms = 1500;
  engine_.set_script(script);
  const std::string late = ask("POST", "/v1/chat/completions", kHelloStream);
  EXPECT_EQ(status_of(late), 200);
  EXPECT_NE(late.find("context_length_exceeded"), std::string::npos);
}

TEST_F(ServerTest, HeartbeatsDuringALongPrefill) {
  ServerConfig config;
  config.heartbeat = std::chrono::milliseconds(200);
  start(config);
  FakeScript script;
  script.delay_before_first_ms = 1500;
  engine_.set_script(script);
  const std::string response = ask("POST", "/v1/chat/completions", kHelloStream);
  EXPECT_NE(response.find(": keep-alive\n\n"), std::string::npos);
  EXPECT_NE(response.find("Hello"), std::string::npos);
}

TEST_F(ServerTest, AClientThatGoesAwayCancelsItsReply) {
  start();
  FakeScript script;
  script.delay_before_first_ms = 60'000;
  engine_.set_script(script);
  for (const char* body : {kHello, kHelloStream}) {
    const int before = engine_.num_cancelled();
    TestClient client(port_);
    client.send(request_text("POST", "/v1/chat/completions", body));
    ASSERT_TRUE(eventually([&] { return engine_.num_running() == 1; }));
    client.close();
    EXPECT_TRUE(eventually([&] { return engine_.num_cancelled() == before + 1; }));
  }
}

TEST_F(ServerTest, AReaderThatTakesNothingIsCutOff) {
  ServerConfig config;
  config.write_timeout = std::chrono::seconds(1);
  start(config);
  FakeScript script;
  script.pieces.assign(100'000, std::string(1000, 'x'));
  engine_.set_script(script);
  TestClient client(port_, 4096);
  client.send(request_text("POST", "/v1/chat/completions", kHelloStream));
  EXPECT_TRUE(eventually([&] { return engine_.num_running() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  EXPECT_EQ(status_of(ask("GET", "/health")), 200);
  EXPECT_TRUE(eventually([&] { return engine_.num_running() == 0; }));
}

TEST_F(ServerTest, TextEndpoints) {
  start();
  EXPECT_EQ(body_of(ask("POST", "/tokenize", R"({"content":"ab"})"))["tokens"], Json({97, 98}));
  EXPECT_EQ(body_of(ask("POST", "/detokenize", R"({"tokens":[97,98]})"))["content"], "ab");
  EXPECT_EQ(status_of(ask("POST", "/detokenize", R"({"tokens":[-1]})")), 400);
  EXPECT_EQ(status_of(ask("POST", "/detokenize", R"({"tokens":[1e99]})")), 400);
  EXPECT_EQ(body_of(ask("POST", "/apply-template", kHello))["prompt"], "user: hi\n");
  EXPECT_EQ(body_of(ask("GET", "/v1/models"))["data"][0]["id"], "fake");
  EXPECT_EQ(status_of(ask("GET", "/v1/models/fake")), 200);
  EXPECT_EQ(status_of(ask("GET", "/v1/models/other")), 404);
  EXPECT_EQ(body_of(ask("GET", "/slots")).size(), 16u);
}

TEST_F(ServerTest, SessionsAreListedForkedAndClosed) {
  start();
  ask("POST", "/v1/chat/completions", kHello, "X-Session-ID: s1\r\n");
  EXPECT_EQ(body_of(ask("GET", "/v1/sessions"))["data"][0]["id"], "s1");
  EXPECT_EQ(body_of(ask("POST", "/v1/sessions/s1/fork", R"({"new_id":"s2"})"))["id"], "s2");
  EXPECT_EQ(status_of(ask("GET", "/v1/sessions/s2")), 200);
  EXPECT_EQ(body_of(ask("DELETE", "/v1/sessions/s1"))["deleted"], true);
  EXPECT_EQ(status_of(ask("GET", "/v1/sessions/s1")), 404);
  EXPECT_EQ(status_of(ask("DELETE", "/v1/sessions/s1")), 404);
  EXPECT_EQ(status_of(ask("POST", "/v1/sessions/s2/explode")), 405);
  EXPECT_EQ(status_of(ask("GET", "/v1/sessions/a%0Ab")), 400);
}

TEST_F(ServerTest, MetricsCount) {
  start();
  ask("POST", "/v1/chat/completions", kHello);
  const std::string text = ask("GET", "/metrics");
  EXPECT_NE(text.find("intentkv_kv_cache_usage_perc 0.25"), std::string::npos) << text;
  EXPECT_NE(text.find("intentkv_time_to_first_token_seconds_count 1"), std::string::npos);
  EXPECT_NE(text.find("endpoint=\"/v1/chat/completions\""), std::string::npos);
}

TEST_F(ServerTest, HostileBodiesGetA4xxAndTheServerLives) {
  start();
  const std::string user = R"({"role":"user","content":"x"},)";
  std::string many = R"({"messages":[)";
  for (int i = 0; i < 10'000; ++i) many += user;
  many += R"({"role":"user","content":"end"}]})";
  EXPECT_EQ(status_of(ask("POST", "/v1/chat/completions", many)), 200);
  EXPECT_EQ(engine_.last_chat().messages.size(), 10'001u);
  const std::string large =
      R"({"messages":[{"role":"user","content":")" + std::string(10u << 20, 'a') + R"("}]})";
  EXPECT_EQ(status_of(ask("POST", "/v1/chat/completions", large)), 200);
  const std::vector<std::string> bad = {
      "",
      "null",
      "[]",
      "{",
      "\"x\"",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}",
      std::string(100'000, '['),
      R"({"a":)" + std::string(1000, '{'),
      R"({"messages":[{"role":"user","content":"x"}],"max_tokens":1e400})",
      R"({"messages":[{"role":"user","content":"x"}],"max_tokens":-7})",
      R"({"messages":[{"role":"user","content":"x"}],"seed":99999999999999999999})"};
  for (const std::string& body : bad) {
    EXPECT_EQ(status_of(ask("POST", "/v1/chat/completions", body)), 400) << body.substr(0, 80);
  }
  std::string keys = "{";
  for (int i = 0; i < 500'000; ++i) keys += "\"k" + std::to_string(i) + "\":0,";
  EXPECT_EQ(status_of(ask("POST", "/v1/chat/completions", keys + "\"z\":0}")), 400);
  EXPECT_EQ(status_of(ask("GET", "/health")), 200);
}

}  // namespace
}  // namespace ikv
