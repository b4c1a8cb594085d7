#include "server/chat_request.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/completion_request.h"

namespace ikv {
namespace {

ApiResult<ChatCall> parse(const std::string& text) {
  ApiResult<Json> body = parse_body(text);
  if (auto* error = std::get_if<ApiError>(&body)) return *error;
  return parse_chat_call(std::get<Json>(body), {});
}

ChatCall parsed(const std::string& fields) {
  ApiResult<ChatCall> call =
      parse(R"({"messages":[{"role":"user","content":"hi"}])" + fields + "}");
  if (auto* error = std::get_if<ApiError>(&call)) {
    ADD_FAILURE() << fields << ": " << error->message;
    return {};
  }
  return std::get<ChatCall>(call);
}

void refused(const std::string& text, const std::string& param, const std::string& code) {
  const ApiResult<ChatCall> call = parse(text);
  const auto* error = std::get_if<ApiError>(&call);
  ASSERT_NE(error, nullptr) << text;
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->param, param) << error->message;
  EXPECT_EQ(error->code, code) << error->message;
}

void refused_field(const std::string& fields, const std::string& param, const std::string& code) {
  refused(R"({"messages":[{"role":"user","content":"hi"}],)" + fields + "}", param, code);
}

TEST(ChatRequestTest, ReadsAToolConversation) {
  const ApiResult<ChatCall> call = parse(R"({"messages":[
      {"role":"developer","content":"rules"},
      {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
      {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
        "function":{"name":"f","arguments":"{\"x\": 1}"}},
        {"id":"c2","function":{"name":"g","arguments":{"y":[2]}}}]},
      {"role":"tool","tool_call_id":"c1","content":"42"},
      {"role":"tool","tool_call_id":"c2"}]})");
  ASSERT_TRUE(std::holds_alternative<ChatCall>(call)) << std::get<ApiError>(call).message;
  const auto& messages = std::get<ChatCall>(call).request.messages;
  ASSERT_EQ(messages.size(), 5u);
  EXPECT_EQ(messages[0].role, Role::kSystem);
  EXPECT_EQ(messages[1].content, "a\nb");
  EXPECT_FALSE(messages[2].content.has_value());
  ASSERT_EQ(messages[2].tool_calls.size(), 2u);
  EXPECT_EQ(messages[2].tool_calls[0].arguments_json, "{\"x\": 1}");
  EXPECT_EQ(messages[2].tool_calls[1].arguments_json, "{\"y\":[2]}");
  EXPECT_EQ(messages[3].tool_call_id, "c1");
  EXPECT_EQ(messages[4].content, "");
}

TEST(ChatRequestTest, ReadsSampling) {
  const GenerationConfig config =
      parsed(R"(,"temperature":0,"top_p":0.5,"top_k":3,"min_p":0.1,"seed":12,"stop":["a","b"],
               "presence_penalty":1,"frequency_penalty":-1,"max_completion_tokens":9,
               "logit_bias":{"5":-100,"6":2.5},"logprobs":true,"top_logprobs":4)")
          .request.generation;
  EXPECT_EQ(config.temperature, 0);
  EXPECT_EQ(config.top_p, 0.5f);
  EXPECT_EQ(config.top_k, 3);
  EXPECT_EQ(config.seed, 12u);
  EXPECT_EQ(config.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(config.max_tokens, 9);
  EXPECT_TRUE(std::isinf(config.logit_bias.at(5)));
  EXPECT_EQ(config.logit_bias.at(6), 2.5f);
  EXPECT_EQ(config.num_logprobs, 4);
}

TEST(ChatRequestTest, NullAndUnknownFieldsChangeNothing) {
  const ChatCall call = parsed(
      R"(,"temperature":null,"stop":null,"tools":null,"tool_choice":null,"user":"u","store":true,
         "metadata":{"a":1},"stream_options":null,"response_format":null,"intentkv":null)");
  EXPECT_EQ(call.request.generation.temperature, GenerationConfig().temperature);
  EXPECT_TRUE(call.request.tools_json.empty());
  EXPECT_FALSE(call.options.stream);
}

TEST(ChatRequestTest, ToolsKeepTheirOrderAndChoiceNoneHidesThem) {
  const std::string tools =
      R"(,"tools":[{"type":"function","function":{"name":"f","z":1,"parameters":{"b":1,"a":2}}}])";
  EXPECT_EQ(parsed(tools).request.tools_json,
            R"([{"type":"function","function":{"name":"f","z":1,"parameters":{"b":1,"a":2}}}])");
  EXPECT_EQ(parsed(tools + R"(,"tool_choice":"none")").request.tools_json, "");
  EXPECT_NE(parsed(tools + R"(,"tool_choice":"auto")").request.tools_json, "");
}

TEST(ChatRequestTest, ReadsStatedIntentAndPins) {
  const ChatRequest text =
      parsed(R"(,"intentkv":{"intent":"find the code","plan_step":"3","pin":[0],"explain":true})")
          .request;
  EXPECT_EQ(text.intent.text, "find the code");
  EXPECT_EQ(text.intent.plan_step, "3");
  EXPECT_EQ(text.pins, std::vector<int32_t>{0});
  EXPECT_TRUE(text.audit);
  const StatedIntent parts =
      parsed(R"(,"intentkv":{"intent":{"name":"book","slots":{"to":"Oslo","n":2}}})")
          .request.intent;
  EXPECT_EQ(parts.name, "book");
  ASSERT_EQ(parts.slots.size(), 2u);
  EXPECT_EQ(parts.slots[0].second, "Oslo");
  EXPECT_EQ(parts.slots[1].second, "2");
}

TEST(ChatRequestTest, FaultsNameTheFieldAndTheKind) {
  refused("{}", "messages", "missing_required_parameter");
  refused(R"({"messages":[]})", "messages", "invalid_value");
  refused(R"({"messages":{}})", "messages", "invalid_type");
  refused(R"({"messages":[3]})", "messages[0]", "invalid_type");
  refused(R"({"messages":[{"content":"x"}]})", "messages[0].role", "missing_required_parameter");
  refused(R"({"messages":[{"role":"alien","content":"x"}]})", "messages[0].role", "invalid_value");
  refused(R"({"messages":[{"role":"user"}]})", "messages[0].content", "missing_required_parameter");
  refused(R"({"messages":[{"role":"user","content":7}]})", "messages[0].content", "invalid_type");
  refused(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})",
          "messages[0].content[0].type", "unsupported_value");
  refused(R"({"messages":[{"role":"assistant","tool_calls":[{"function":{}}]}]})",
          "messages[0].tool_calls[0].function.name", "missing_required_parameter");
  refused_field(R"("temperature":"hot")", "temperature", "invalid_type");
  refused_field(R"("temperature":-1)", "temperature", "invalid_value");
  refused_field(R"("max_tokens":1.5)", "max_tokens", "invalid_type");
  refused_field(R"("max_tokens":-2)", "max_tokens", "invalid_value");
  refused_field(R"("n":0)", "n", "invalid_value");
  refused_field(R"("n":1000000)", "n", "invalid_value");
  refused_field(R"("stream":"yes")", "stream", "invalid_type");
  refused_field(R"("stop":[1])", "stop[0]", "invalid_type");
  refused_field(R"("logit_bias":{"x":1})", "logit_bias.x", "invalid_value");
  refused_field(R"("logit_bias":{"1":1000})", "logit_bias.1", "invalid_value");
  refused_field(R"("top_logprobs":3)", "top_logprobs", "invalid_value");
  refused_field(R"("tools":[{"type":"function"}])", "tools[0].function",
                "missing_required_parameter");
  refused_field(R"("tool_choice":"required")", "tool_choice", "unsupported_value");
  refused_field(R"("response_format":{"type":"json_object"})", "response_format.type",
                "unsupported_value");
  refused_field(R"("stream_options":3)", "stream_options", "invalid_type");
  refused_field(R"("intentkv":{"truncate":"prune"})", "intentkv.truncate", "unsupported_value");
  refused_field(R"("intentkv":{"pin":[1]})", "intentkv.pin[0]", "invalid_value");
  refused_field(R"("intentkv":{"pin":[-1]})", "intentkv.pin[0]", "invalid_value");
  refused_field(R"("intentkv":{"intent":4})", "intentkv.intent", "invalid_type");
  refused_field(R"("intentkv":{"attend":"5%"})", "intentkv.attend", "unsupported_parameter");
  refused_field(R"("functions":[])", "functions", "unsupported_parameter");
}

TEST(ChatRequestTest, BodiesWithoutBoundsAreRefused) {
  refused(std::string(1000, '['), "", "invalid_json");
  refused("{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}", "", "invalid_json");
  refused("[]", "", "invalid_json");
  refused("{\"a\":\"\xc3\x28\"}", "", "invalid_json");
  std::string keys = "{";
  for (int i = 0; i < 2000; ++i) keys += "\"" + std::to_string(i) + "\":0,";
  refused(keys + "\"z\":0}", "", "invalid_json");
}

TEST(CompletionRequestTest, PromptsInAllTheirForms) {
  const auto prompts = [](const std::string& prompt) {
    const Json body = Json::parse("{\"prompt\":" + prompt + "}");
    ApiResult<CompletionCall> call = parse_completion_call(body, {});
    auto* value = std::get_if<CompletionCall>(&call);
    return value == nullptr ? std::vector<CompletionRequest>() : value->requests;
  };
  EXPECT_EQ(prompts(R"("a")")[0].prompt, "a");
  EXPECT_EQ(prompts("[1,2]")[0].prompt_tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(prompts(R"(["a","b"])").size(), 2u);
  EXPECT_EQ(prompts("[[1],[2,3]]")[1].prompt_tokens, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(prompts(R"("a")")[0].generation.max_tokens, 16);
  for (const char* bad :
       {"[]", "[[]]", "[1,\"a\"]", "{}", "7", "[-1]", "[null]", "[99999999999]"}) {
    EXPECT_TRUE(prompts(bad).empty()) << bad;
  }
}

}  // namespace
}  // namespace ikv
