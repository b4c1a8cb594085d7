// The hard cap of cache memory, and requests that cannot be.
#include <gtest/gtest.h>
#include <unistd.h>

#include "engine_fixture.h"

namespace ikv::testing {
namespace {

TEST(EngineMemoryTest, ACapBelowTheMinimumIsRefusedAtStartWithTheMinimum) {
  EngineConfig config = tiny_config();
  config.kv_memory_bytes = 100000;
  const auto engine = Engine::create(config);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(engine.error().message.find("100000"), std::string::npos) << engine.error().message;
}

TEST(EngineMemoryTest, TwoHundredSessionsStayUnderTheCap) {
  EngineConfig config = tiny_config();
  config.kv_memory_bytes = 6u << 20;
  config.max_parallel = 4;
  config.prefill_chunk_tokens = 64;
  const auto engine = tiny_engine(config);
  ASSERT_NE(engine, nullptr);
  for (unsigned i = 0; i < 200; ++i) {
    const int words = static_cast<int>(10 + (i * 37) % 150);
    const GenerationResult result =
        run_chat(*engine, chat_request({message(Role::kUser, filler(words, i))}, 8));
    EXPECT_EQ(result.usage.completion_tokens, 8);
    EXPECT_LE(engine->stats().kv_peak_bytes, config.kv_memory_bytes);
  }
}

TEST(EngineMemoryTest, ARequestThatCannotFitIsRefusedWithFiguresAndTheEngineLivesOn) {
  EngineConfig config = tiny_config();
  config.max_parallel = 2;
  config.prefill_chunk_tokens = 16;
  config.kv_memory_bytes = 4600000;  // most of it scratch
  const auto engine = tiny_engine(config);
  ASSERT_NE(engine, nullptr);
  auto generation = engine->chat(chat_request({message(Role::kUser, filler(300, 1))}, 400));
  ASSERT_TRUE(generation.ok());
  auto result = (*generation)->wait();
  if (!result.ok()) {
    EXPECT_EQ(result.error().code, ErrorCode::kOutOfMemory);
    EXPECT_NE(result.error().message.find("bytes"), std::string::npos) << result.error().message;
  }
  EXPECT_EQ(
      run_chat(*engine, chat_request({message(Role::kUser, "hi")}, 3)).usage.completion_tokens, 3);
}

TEST(EngineMemoryTest, RequestsThatDoNotFitTogetherWaitForEachOther) {
  EngineConfig config = tiny_config();
  config.kv_memory_bytes = 4900000;  // most of it scratch
  config.prefill_chunk_tokens = 16;
  config.max_parallel = 4;
  const auto engine = tiny_engine(config);
  ASSERT_NE(engine, nullptr);
  std::vector<std::shared_ptr<Generation>> generations;
  for (unsigned i = 0; i < 8; ++i) {
    generations.push_back(
        engine->chat(chat_request({message(Role::kUser, filler(100, i))}, 60)).value());
  }
  for (auto& generation : generations) {
    auto result = generation->wait();
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(result->usage.completion_tokens, 60);
  }
}

TEST(EngineMemoryTest, APromptLongerThanTheContextIsRefusedWithBothFigures) {
  const auto engine = tiny_engine();
  auto generation = engine->chat(chat_request({message(Role::kUser, filler(2000, 1))}, 4));
  ASSERT_FALSE(generation.ok());
  EXPECT_EQ(generation.error().code, ErrorCode::kContextExceeded);
  EXPECT_NE(generation.error().message.find("1024"), std::string::npos);
}

TEST(EngineMemoryTest, AReplyEndsWithTheContext) {
  EngineConfig config = tiny_config();
  config.context_tokens = 128;
  const auto engine = tiny_engine(config);
  const GenerationResult result =
      run_chat(*engine, chat_request({message(Role::kUser, filler(20, 1))}, -1));
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(result.usage.prompt_tokens + result.usage.completion_tokens, 128);
}

TEST(EngineMemoryTest, WrongSettingsAreNamed) {
  const auto refused = [](auto change) {
    EngineConfig config = tiny_config();
    change(config);
    const auto engine = Engine::create(config);
    EXPECT_FALSE(engine.ok());
    return engine.ok() ? std::string() : engine.error().message;
  };
  using Config = EngineConfig&;
  EXPECT_NE(refused([](Config c) { c.cache_type_k = "int3"; }).find("int3"), std::string::npos);
  EXPECT_NE(refused([](Config c) { c.block_tokens = 33; }).find("33"), std::string::npos);
  EXPECT_NE(refused([](Config c) { c.context_tokens = 4096; }).find("4096"), std::string::npos);
  EXPECT_NE(refused([](Config c) { c.model_path = "/no/such"; }).find("/no/such"),
            std::string::npos);
  EXPECT_NE(refused([](Config c) { c.max_parallel = 0; }).find("max_parallel"), std::string::npos);
}

TEST(EngineMemoryTest, BadRequestsAreNamedAndHarmless) {
  const auto engine = tiny_engine();
  EXPECT_FALSE(engine->chat(chat_request({}, 4)).ok());
  ChatRequest request = chat_request({message(Role::kUser, "x")}, 4);
  request.generation.temperature = -1;
  EXPECT_FALSE(engine->chat(std::move(request)).ok());
  CompletionRequest tokens;
  tokens.prompt_tokens = {1 << 20};
  EXPECT_FALSE(engine->complete(std::move(tokens)).ok());
  EXPECT_FALSE(engine->complete(CompletionRequest{}).ok());
  EXPECT_FALSE(engine->detokenize({-5}).ok());
}

}  // namespace
}  // namespace ikv::testing
