// Absurd flag values are refused with the bounds, sane ones pass.
#include "flag_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "cli_error.h"
#include "engine_options.h"

namespace ikv {
namespace {

using ::testing::HasSubstr;

std::string check(const CLI::Validator& validator, std::string text) {
  return validator(text);
}

TEST(FlagChecks, IntegersOutsideTheirRangeAreRefused) {
  const CLI::Validator threads = integer_between(1, 1024);
  for (const char* good : {"1", "16", "1024"}) EXPECT_EQ(check(threads, good), "") << good;
  for (const char* bad : {"0", "-1", "1025", "", " 1", "1 ", "2x", "1.5", "0x10", "1e3", "+1",
                          "99999999999999999999", "nan"}) {
    EXPECT_THAT(check(threads, bad), HasSubstr("from 1 to 1024")) << bad;
  }
}

TEST(FlagChecks, NumbersThatAreNotFiniteOrOutsideAreRefused) {
  const CLI::Validator temperature = number_between(0, 100);
  for (const char* good : {"0", "0.8", "1e-3", "100"})
    EXPECT_EQ(check(temperature, good), "") << good;
  for (const char* bad :
       {"nan", "NaN", "inf", "-inf", "-0.1", "100.5", "1e400", "", "one", "0.5,"}) {
    EXPECT_THAT(check(temperature, bad), HasSubstr("from 0 to 100")) << bad;
  }
}

TEST(FlagChecks, SizesTakeBinaryAndDecimalUnits) {
  const std::pair<const char*, uint64_t> cases[] = {{"1", 1},
                                                    {"4096", 4096},
                                                    {"256MiB", 268435456},
                                                    {"256M", 268435456},
                                                    {"200MB", 200000000},
                                                    {"1.5GiB", 1610612736},
                                                    {"1 GiB", 1073741824},
                                                    {"512kib", 524288}};
  for (const auto& [text, bytes] : cases) {
    Result<uint64_t> parsed = parse_bytes(text);
    ASSERT_TRUE(parsed.ok()) << text;
    EXPECT_EQ(*parsed, bytes) << text;
  }
}

TEST(FlagChecks, NonsenseSizesAreRefused) {
  for (const char* bad : {"", "0", "-1", "MiB", "12XB", "1..5GiB", "1e30GiB", "99999999999GiB",
                          "nan", "0.1", "1TiBx"}) {
    Result<uint64_t> parsed = parse_bytes(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_THAT(parsed.error().message, HasSubstr("must be a size")) << bad;
  }
}

TEST(FlagChecks, LogitBiasTakesLlamaCppsForm) {
  std::map<int32_t, float> biases;
  ASSERT_TRUE(parse_logit_bias("42+1.5", biases).ok());
  ASSERT_TRUE(parse_logit_bias("7-0.25", biases).ok());
  ASSERT_TRUE(parse_logit_bias("0-inf", biases).ok());
  EXPECT_FLOAT_EQ(biases[42], 1.5f);
  EXPECT_FLOAT_EQ(biases[7], -0.25f);
  EXPECT_TRUE(std::isinf(biases[0]) && biases[0] < 0);
  for (const char* bad :
       {"", "42", "+1", "-1+2", "a+1", "42+", "42+nan", "42+inf", "42--1", "42+1x"}) {
    EXPECT_FALSE(parse_logit_bias(bad, biases).ok()) << bad;
  }
}

class Options : public ::testing::Test {
 protected:
  // The error of parsing `arguments`, or empty.
  std::string parse(const std::vector<std::string>& arguments) {
    CLI::App app;
    engine_ = {};
    generation_ = {};
    add_engine_options(app, engine_);
    add_generation_options(app, generation_);
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    try {
      app.parse(reversed);
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "";
  }
  EngineOptions engine_;
  GenerationOptions generation_;
};

TEST_F(Options, ReachTheConfigs) {
  ASSERT_EQ(parse({"-m",           "m.gguf", "-t",     "2", "-c",           "4096",
                   "--kv-memory",  "64MiB",  "--temp", "0", "--seed",       "7",
                   "--stop",       "a",      "--stop", "b", "--logit-bias", "3-inf",
                   "--logit-bias", "4+1",    "-n",     "5"}),
            "");
  EXPECT_EQ(engine_.resolve().kv_memory_bytes, uint64_t{64} << 20);
  EXPECT_EQ(engine_.resolve().num_threads, 2);
  EXPECT_EQ(engine_.resolve().context_tokens, 4096);
  const GenerationConfig generation = generation_.resolve();
  EXPECT_EQ(generation.seed, std::optional<uint64_t>(7));
  EXPECT_EQ(generation.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(generation.logit_bias.size(), 2u);
  EXPECT_EQ(generation.max_tokens, 5);
  EXPECT_EQ(generation.temperature, 0.0f);
}

TEST_F(Options, AbsurdValuesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {{"--threads", "-1"},
                                                       {"--threads", "0"},
                                                       {"--ctx-size", "0"},
                                                       {"--ctx-size", "-5"},
                                                       {"--ctx-size", "999999999999"},
                                                       {"--temp", "nan"},
                                                       {"--temp", "-1"},
                                                       {"--top-p", "1.5"},
                                                       {"--top-k", "-1"},
                                                       {"--min-p", "inf"},
                                                       {"--repeat-penalty", "0"},
                                                       {"--seed", "-2"},
                                                       {"--n-predict", "-2"},
                                                       {"--kv-memory", "lots"},
                                                       {"--cache-type-k", "int2"},
                                                       {"--logit-bias", "x"}};
  for (const auto& [flag, value] : cases) {
    EXPECT_THAT(parse({"-m", "m.gguf", flag, value}), HasSubstr(flag)) << flag << " " << value;
  }
}

TEST(CliError, MessagesStayOnOneLine) {
  EXPECT_EQ(one_line("a\nb\tc\x1b[0m"), "a\\nb\\x09c\\x1b[0m");
  EXPECT_EQ(one_line("größer"), "größer");
}

}  // namespace
}  // namespace ikv
