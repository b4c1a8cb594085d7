// Anthropic's messages and OpenAI's responses: requests in, replies out, without sockets.
#include <gtest/gtest.h>

#include "server/messages_reply.h"
#include "server/messages_request.h"
#include "server/response_store.h"
#include "server/responses_reply.h"
#include "server/responses_request.h"

namespace ikv {
namespace {

GenerationResult result_of(const std::string& text, std::vector<ToolCall> calls = {}) {
  GenerationResult result;
  result.text = text;
  result.message.role = Role::kAssistant;
  if (!text.empty()) result.message.content = text;
  result.message.tool_calls = std::move(calls);
  result.finish_reason =
      result.message.tool_calls.empty() ? FinishReason::kStop : FinishReason::kToolCalls;
  result.usage.prompt_tokens = 20;
  result.usage.cached_tokens = 15;
  result.usage.completion_tokens = 4;
  return result;
}

GenerationEvent piece(const std::string& text) {
  GenerationEvent event;
  event.text = text;
  return event;
}

// The data objects of a stream, in order.
std::vector<Json> events_of(const std::string& frames) {
  std::vector<Json> events;
  for (size_t at = 0; (at = frames.find("data: ", at)) != std::string::npos;) {
    const size_t end = frames.find("\n\n", at);
    events.push_back(Json::parse(frames.substr(at + 6, end - at - 6)));
    at = end;
  }
  return events;
}

std::vector<std::string> types_of(const std::vector<Json>& events) {
  std::vector<std::string> types;
  for (const Json& event : events) types.push_back(event["type"]);
  return types;
}

TEST(MessagesTest, BlocksBecomeMessages) {
  const Json body = Json::parse(R"({"max_tokens":9,"system":[{"type":"text","text":"s"}],
      "stop_sequences":["x"],
      "tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}],
      "messages":[{"role":"user","content":"q"},
        {"role":"assistant","content":[{"type":"thinking","thinking":"hm"},
          {"type":"text","text":"a"},{"type":"tool_use","id":"t1","name":"f","input":{"k":1}}]},
        {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1",
          "content":[{"type":"text","text":"r"}]},{"type":"text","text":"next"}]}]})");
  const ApiResult<ChatCall> call = parse_messages_call(body, {});
  ASSERT_TRUE(std::holds_alternative<ChatCall>(call)) << std::get<ApiError>(call).message;
  const ChatRequest& request = std::get<ChatCall>(call).request;
  ASSERT_EQ(request.messages.size(), 5u);
  EXPECT_EQ(request.messages[0].role, Role::kSystem);
  EXPECT_EQ(request.messages[2].content, "a");
  EXPECT_EQ(request.messages[2].tool_calls[0].arguments_json, R"({"k":1})");
  EXPECT_EQ(request.messages[3].role, Role::kTool);
  EXPECT_EQ(request.messages[3].content, "r");
  EXPECT_EQ(request.messages[3].tool_call_id, "t1");
  EXPECT_EQ(request.messages[4].content, "next");
  EXPECT_EQ(request.generation.max_tokens, 9);
  EXPECT_EQ(request.generation.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(Json::parse(request.tools_json)[0]["function"]["parameters"]["type"], "object");
}

TEST(MessagesTest, FaultsNameTheField) {
  const auto param = [](const std::string& text) {
    const ApiResult<ChatCall> call = parse_messages_call(Json::parse(text), {});
    const auto* error = std::get_if<ApiError>(&call);
    return error == nullptr ? "accepted" : error->param;
  };
  EXPECT_EQ(param(R"({"messages":[{"role":"user","content":"q"}]})"), "max_tokens");
  EXPECT_EQ(param(R"({"max_tokens":1})"), "messages");
  EXPECT_EQ(param(R"({"max_tokens":1,"messages":[{"role":"system","content":"q"}]})"),
            "messages[0].role");
  EXPECT_EQ(param(R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image"}]}]})"),
            "messages[0].content[0].type");
  EXPECT_EQ(param(R"({"max_tokens":1,"messages":[{"role":"user","content":"q"}],
                      "tool_choice":{"type":"any"}})"),
            "tool_choice.type");
}

TEST(MessagesTest, StreamOfTextAndToolUseHasAnthropicsEvents) {
  auto reply = make_messages_reply({"msg_1", "m", 0}, {}, true);
  std::string frames = reply->begin_stream();
  frames += reply->stream_event(0, piece("Hi <tool_call>{\"name\":\"f\",\"argume"));
  frames += reply->stream_event(0, piece("nts\":{\"k\":1}}</tool_call>"));
  const GenerationResult result = result_of("Hi");
  frames += reply->stream_end(0, result);
  frames += reply->finish_stream({result});
  const std::vector<Json> events = events_of(frames);
  EXPECT_EQ(types_of(events),
            (std::vector<std::string>{"message_start", "ping", "content_block_start",
                                      "content_block_delta", "content_block_stop",
                                      "content_block_start", "content_block_delta",
                                      "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_EQ(events[3]["delta"]["text"], "Hi");
  EXPECT_EQ(events[5]["content_block"]["name"], "f");
  EXPECT_EQ(events[5]["index"], 1);
  EXPECT_EQ(events[6]["delta"]["partial_json"], R"({"k":1})");
  EXPECT_EQ(events[8]["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(events[8]["usage"]["cache_read_input_tokens"], 15);
}

TEST(MessagesTest, WholeReply) {
  auto reply = make_messages_reply({"msg_1", "m", 0}, {}, true);
  const Json body = reply->whole({result_of("text", {{"call_0", "f", R"({"a":1})"}})});
  EXPECT_EQ(body["content"][0]["text"], "text");
  EXPECT_EQ(body["content"][1]["input"], Json({{"a", 1}}));
  EXPECT_EQ(body["stop_reason"], "tool_use");
  EXPECT_EQ(body["usage"]["input_tokens"], 5);
}

std::optional<std::vector<Message>> find_nothing(const std::string&) {
  return std::nullopt;
}

TEST(ResponsesTest, ItemsBecomeMessages) {
  const Json body = Json::parse(R"({"instructions":"i","max_output_tokens":5,"input":[
      {"role":"user","content":[{"type":"input_text","text":"q"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]},
      {"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
      {"type":"function_call_output","call_id":"c","output":"r"}],
      "tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}]})");
  const ApiResult<ResponsesCall> call = parse_responses_call(body, {}, find_nothing);
  ASSERT_TRUE(std::holds_alternative<ResponsesCall>(call)) << std::get<ApiError>(call).message;
  const ChatRequest& request = std::get<ResponsesCall>(call).request;
  ASSERT_EQ(request.messages.size(), 4u);
  EXPECT_EQ(request.messages[0].role, Role::kSystem);
  EXPECT_EQ(request.messages[2].tool_calls[0].name, "f");
  EXPECT_EQ(request.messages[3].content, "r");
  EXPECT_EQ(request.generation.max_tokens, 5);
}

TEST(ResponsesTest, PreviousResponsesAreFoundOrRefused) {
  ResponseStore store(10'000);
  Message user;
  user.content = "before";
  store.put("resp_1", {user});
  const auto parse = [&](const std::string& id) {
    return parse_responses_call({{"input", "now"}, {"previous_response_id", id}}, {},
                                [&](const std::string& wanted) { return store.find(wanted); });
  };
  const ApiResult<ResponsesCall> known = parse("resp_1");
  ASSERT_TRUE(std::holds_alternative<ResponsesCall>(known));
  EXPECT_EQ(std::get<ResponsesCall>(known).request.messages.size(), 2u);
  const ApiResult<ResponsesCall> unknown = parse("resp_2");
  ASSERT_TRUE(std::holds_alternative<ApiError>(unknown));
  EXPECT_EQ(std::get<ApiError>(unknown).param, "previous_response_id");
}

TEST(ResponsesTest, StoreStaysWithinItsBytes) {
  ResponseStore store(2000);
  Message large;
  large.content = std::string(1200, 'x');
  store.put("a", {large});
  store.put("b", {large});
  EXPECT_FALSE(store.find("a").has_value());
  EXPECT_TRUE(store.find("b").has_value());
  large.content = std::string(5000, 'x');
  store.put("c", {large});
  EXPECT_FALSE(store.find("c").has_value());
  EXPECT_TRUE(store.find("b").has_value());
}

TEST(ResponsesTest, StreamHasOpenAisEventsAndKeepsTheReply) {
  std::optional<Message> kept;
  auto reply = make_responses_reply({"resp_1", "m", 0}, Json::object(), {}, true,
                                    [&](const Message& message) { kept = message; });
  std::string frames = reply->begin_stream();
  frames += reply->stream_event(0, piece("Hi"));
  frames +=
      reply->stream_event(0, piece("<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>"));
  const GenerationResult result = result_of("Hi");
  frames += reply->stream_end(0, result);
  const std::vector<Json> events = events_of(frames);
  EXPECT_EQ(
      types_of(events),
      (std::vector<std::string>{
          "response.created", "response.in_progress", "response.output_item.added",
          "response.content_part.added", "response.output_text.delta", "response.output_text.done",
          "response.content_part.done", "response.output_item.done", "response.output_item.added",
          "response.function_call_arguments.delta", "response.function_call_arguments.done",
          "response.output_item.done", "response.completed"}));
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  const Json output = events.back()["response"]["output"];
  ASSERT_EQ(output.size(), 2u);
  EXPECT_EQ(output[0]["content"][0]["text"], "Hi");
  EXPECT_EQ(output[1]["name"], "f");
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->tool_calls[0].id, output[1]["call_id"]);
}

}  // namespace
}  // namespace ikv
