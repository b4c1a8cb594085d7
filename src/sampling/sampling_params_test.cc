#include "sampling/sampling_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace ikv {
namespace {

constexpr int kVocab = 100;

struct BadCase {
  const char* name;
  void (*spoil)(GenerationConfig&);
  const char* message_part;
};

class BadSampling : public testing::TestWithParam<BadCase> {};

TEST_P(BadSampling, IsRefusedWithTheFieldsName) {
  GenerationConfig config;
  GetParam().spoil(config);
  const Status status = validate_sampling(config, kVocab);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(status.error().message, testing::HasSubstr(GetParam().message_part));
}

const BadCase kBadCases[] = {
    {"TemperatureNan", [](GenerationConfig& c) { c.temperature = NAN; }, "temperature is nan"},
    {"TemperatureNegative", [](GenerationConfig& c) { c.temperature = -0.1f; }, "temperature"},
    {"TemperatureInfinite", [](GenerationConfig& c) { c.temperature = INFINITY; }, "temperature"},
    {"TopK", [](GenerationConfig& c) { c.top_k = -2; }, "top_k is -2"},
    {"TopPHigh", [](GenerationConfig& c) { c.top_p = 1.5f; }, "top_p is 1.5"},
    {"TopPNan", [](GenerationConfig& c) { c.top_p = NAN; }, "top_p"},
    {"MinP", [](GenerationConfig& c) { c.min_p = -0.5f; }, "min_p"},
    {"RepeatPenaltyZero", [](GenerationConfig& c) { c.repeat_penalty = 0.0f; }, "repeat_penalty"},
    {"RepeatLastN", [](GenerationConfig& c) { c.repeat_last_n = -2; }, "repeat_last_n"},
    {"Presence", [](GenerationConfig& c) { c.presence_penalty = NAN; }, "presence_penalty"},
    {"Frequency", [](GenerationConfig& c) { c.frequency_penalty = -INFINITY; },
     "frequency_penalty"},
    {"MaxTokens", [](GenerationConfig& c) { c.max_tokens = -5; }, "max_tokens"},
    {"BiasBeyond", [](GenerationConfig& c) { c.logit_bias[kVocab] = 1.0f; }, "token 100"},
    {"BiasNegativeId", [](GenerationConfig& c) { c.logit_bias[-1] = 1.0f; }, "token -1"},
    {"BiasNan", [](GenerationConfig& c) { c.logit_bias[3] = NAN; }, "token 3"},
    {"BiasInfinite", [](GenerationConfig& c) { c.logit_bias[3] = INFINITY; }, "token 3"},
    {"Logprobs", [](GenerationConfig& c) { c.num_logprobs = kVocab + 1; }, "logprobs"},
    {"StopEmpty",
     [](GenerationConfig& c) {
       c.stop = {"ok", ""};
     },
     "stop[1] is empty"},
    {"StopLong", [](GenerationConfig& c) { c.stop = {std::string(5000, 'x')}; }, "5000 bytes"},
    {"StopTruncatedUtf8", [](GenerationConfig& c) { c.stop = {"\xE4\xBD"}; }, "UTF-8"},
    {"StopOverlongUtf8", [](GenerationConfig& c) { c.stop = {"\xE0\x80\x80"}; }, "UTF-8"},
    {"StopSurrogate", [](GenerationConfig& c) { c.stop = {"\xED\xA0\x80"}; }, "UTF-8"},
    {"StopTooMany", [](GenerationConfig& c) { c.stop.assign(65, "x"); }, "65"},
};
INSTANTIATE_TEST_SUITE_P(All, BadSampling, testing::ValuesIn(kBadCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(SamplingParamsTest, DefaultsAndLimitsOfTheRangesAreAccepted) {
  EXPECT_TRUE(validate_sampling({}, kVocab).ok());
  GenerationConfig edge;
  edge.temperature = 0.0f;
  edge.top_k = -1;
  edge.top_p = 0.0f;
  edge.min_p = 1.0f;
  edge.repeat_last_n = -1;
  edge.logit_bias = {{0, -INFINITY}, {kVocab - 1, 5.0f}};
  edge.num_logprobs = kVocab;
  edge.max_tokens = 0;
  edge.stop = {"\xE4\xBD\xA0", "\xF0\x9F\x98\x80", "\n\n"};
  const Status status = validate_sampling(edge, kVocab);
  EXPECT_TRUE(status.ok()) << status.error().message;
}

}  // namespace
}  // namespace ikv
