#include "text/tool_call_parser.h"

#include <gtest/gtest.h>

namespace ikv {
namespace {

/// Feeds `text` in pieces of `step` bytes.
ToolCallDelta parse_in_steps(std::string_view text, size_t step) {
  ToolCallParser parser;
  ToolCallDelta out;
  const auto add = [&](ToolCallDelta delta) {
    out.text += delta.text;
    for (ToolCall& call : delta.tool_calls) out.tool_calls.push_back(std::move(call));
  };
  for (size_t at = 0; at < text.size(); at += step) add(parser.push(text.substr(at, step)));
  add(parser.finish());
  return out;
}

void expect_all_steps(std::string_view text, std::string_view expected_text,
                      std::vector<std::pair<std::string, std::string>> expected_calls) {
  for (size_t step : {1, 2, 3, 7, 11, 1000}) {
    const ToolCallDelta out = parse_in_steps(text, step);
    EXPECT_EQ(out.text, expected_text) << "step " << step;
    ASSERT_EQ(out.tool_calls.size(), expected_calls.size()) << "step " << step;
    for (size_t i = 0; i < expected_calls.size(); ++i) {
      EXPECT_EQ(out.tool_calls[i].name, expected_calls[i].first);
      EXPECT_EQ(out.tool_calls[i].arguments_json, expected_calls[i].second);
      EXPECT_EQ(out.tool_calls[i].id, "call_" + std::to_string(i));
    }
  }
}

TEST(ToolCallParserTest, SplitsCallsFromText) {
  expect_all_steps(
      "Let me look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"é\"]}}\n"
      "</tool_call>\n<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>\n",
      "Let me look.", {{"f", "{\"a\":[1,\"é\"]}"}, {"g", "{}"}});
}

TEST(ToolCallParserTest, TextWithoutCallsComesThroughUnchanged) {
  for (std::string_view text : {"", "plain", " a < b \n\n", "<tool", "ends with <tool_call",
                                "<tool_cal>x</tool_call>", "\n \n"}) {
    expect_all_steps(text, text, {});
  }
}

TEST(ToolCallParserTest, BlocksThatAreNoCallsStayText) {
  for (std::string_view text :
       {"<tool_call>not json</tool_call>", "<tool_call>[1]</tool_call> tail",
        "a <tool_call>{\"name\": 5}</tool_call>", "<tool_call>{\"name\": \"f\"", "x <tool_call>"}) {
    expect_all_steps(text, text, {});
  }
}

TEST(ToolCallParserTest, ForgivesWhatSmallModelsForget) {
  expect_all_steps("<tool_call>\n{\"name\": \"f\", \"arguments\": {}}", "", {{"f", "{}"}});
  expect_all_steps("<tool_call>{\"name\": \"f\"}</tool_call>", "", {{"f", "{}"}});
  expect_all_steps("<tool_call>{\"name\": \"f\", \"arguments\": \"{\\\"a\\\":1}\"}</tool_call>", "",
                   {{"f", "{\"a\":1}"}});
}

TEST(ToolCallParserTest, TextAppearsAsSoonAsItIsCertain) {
  ToolCallParser parser;
  EXPECT_EQ(parser.push("Hello <to").text, "Hello");
  EXPECT_EQ(parser.push("day").text, " <today");
  EXPECT_FALSE(parser.inside_call());
  parser.push("<tool_call>{");
  EXPECT_TRUE(parser.inside_call());
}

TEST(ToolCallParserTest, DeepNestingIsRefusedNotFollowed) {
  const std::string deep =
      "<tool_call>{\"name\": \"f\", \"arguments\": " + std::string(200000, '[') +
      std::string(200000, ']') + "}</tool_call>";
  EXPECT_TRUE(parse_tool_calls(deep).tool_calls.empty());
}

}  // namespace
}  // namespace ikv
