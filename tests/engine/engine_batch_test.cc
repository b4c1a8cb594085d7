// Continuous batching: a request's greedy reply does not depend on its company.
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "engine_fixture.h"

namespace ikv::testing {
namespace {

std::vector<ChatRequest> mixed_requests(int count) {
  std::vector<ChatRequest> requests;
  for (int i = 0; i < count; ++i) {
    const auto seed = static_cast<unsigned>(100 + i);
    requests.push_back(
        chat_request({message(Role::kUser, filler(5 + 37 * (i % 7), seed))}, 10 + 5 * (i % 4)));
    requests.back().cache_salt = std::to_string(i);  // nothing is shared
  }
  return requests;
}

TEST(EngineBatchTest, GreedyRepliesAreBitIdenticalAloneAndInAnyBatch) {
  constexpr int kCount = 12;
  std::vector<std::string> alone;
  {
    EngineConfig config = tiny_config();
    config.max_parallel = 1;
    const auto engine = tiny_engine(config);
    for (ChatRequest& request : mixed_requests(kCount)) {
      alone.push_back(run_chat(*engine, std::move(request)).text);
    }
  }
  for (const int chunk : {16, 33, 512}) {
    EngineConfig config = tiny_config();
    config.prefill_chunk_tokens = chunk;
    const auto engine = tiny_engine(config);
    std::vector<std::shared_ptr<Generation>> running;
    for (ChatRequest& request : mixed_requests(kCount)) {
      auto generation = engine->chat(std::move(request));
      ASSERT_TRUE(generation.ok()) << generation.error().message;
      running.push_back(*generation);
    }
    for (int i = 0; i < kCount; ++i) {
      auto result = running[static_cast<size_t>(i)]->wait();
      ASSERT_TRUE(result.ok()) << result.error().message;
      EXPECT_EQ(result->text, alone[static_cast<size_t>(i)])
          << "chunk " << chunk << " request " << i;
    }
  }
}

TEST(EngineBatchTest, LogprobsAreBitIdenticalToo) {
  const auto with_logprobs = [](int chunk, bool company) {
    EngineConfig config = tiny_config();
    config.prefill_chunk_tokens = chunk;
    const auto engine = tiny_engine(config);
    std::vector<std::shared_ptr<Generation>> others;
    if (company) {
      for (ChatRequest& request : mixed_requests(5)) {
        others.push_back(engine->chat(std::move(request)).value());
      }
    }
    ChatRequest request = chat_request({message(Role::kUser, filler(90, 77))}, 12);
    request.generation.num_logprobs = 2;
    request.cache_salt = "own";
    std::vector<float> values;
    for (const SampledToken& token : run_chat(*engine, std::move(request)).tokens) {
      values.push_back(token.chosen.logprob);
    }
    return values;
  };
  const std::vector<float> expected = with_logprobs(512, false);
  ASSERT_EQ(expected.size(), 12u);
  EXPECT_EQ(with_logprobs(17, false), expected);
  EXPECT_EQ(with_logprobs(64, true), expected);
}

TEST(EngineBatchTest, CancellationFreesEverythingAndTheSessionGoesOn) {
  const auto engine = tiny_engine();
  auto generation = engine->chat(chat_request({message(Role::kUser, filler(50, 5))}, 800, "s"));
  ASSERT_TRUE(generation.ok());
  ASSERT_TRUE((*generation)->next().ok());
  (*generation)->cancel();
  auto result = (*generation)->wait();
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->finish_reason, FinishReason::kCancelled);
  EXPECT_LT(result->usage.completion_tokens, 800);
  const GenerationResult next =
      run_chat(*engine, chat_request({message(Role::kUser, filler(50, 5)), result->message,
                                      message(Role::kUser, "x")},
                                     5, "s"));
  EXPECT_EQ(next.usage.completion_tokens, 5);
  EXPECT_GT(next.usage.cached_tokens, 50);
}

TEST(EngineBatchTest, DroppingTheHandleCancels) {
  const auto engine = tiny_engine();
  engine->chat(chat_request({message(Role::kUser, filler(50, 5))}, 900)).value().reset();
  // Would wait for 900 tokens if the first still ran on the only slot.
  run_chat(*engine, chat_request({message(Role::kUser, "y")}, 2));
  for (int i = 0; i < 200 && engine->stats().running > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(engine->stats().running, 0);
}

TEST(EngineBatchTest, TheQueueIsBounded) {
  EngineConfig config = tiny_config();
  config.max_parallel = 1;
  config.max_queue = 2;
  const auto engine = tiny_engine(config);
  std::vector<std::shared_ptr<Generation>> accepted;
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    auto generation = engine->chat(
        chat_request({message(Role::kUser, filler(20, static_cast<unsigned>(i)))}, 100));
    if (generation.ok()) {
      accepted.push_back(*generation);
    } else {
      EXPECT_EQ(generation.error().code, ErrorCode::kBusy);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  for (auto& generation : accepted) EXPECT_TRUE(generation->wait().ok());
}

TEST(EngineBatchTest, OneSessionIsServedInOrder) {
  const auto engine = tiny_engine();
  std::vector<std::shared_ptr<Generation>> generations;
  for (int i = 0; i < 6; ++i) {
    generations.push_back(
        engine->chat(chat_request({message(Role::kUser, filler(30, 1))}, 10, "one")).value());
  }
  std::string text;
  for (auto& generation : generations) {
    auto result = generation->wait();
    ASSERT_TRUE(result.ok());
    if (text.empty()) text = result->text;
    EXPECT_EQ(result->text, text);
  }
}

TEST(EngineBatchTest, ManyThreadsMayUseOneEngine) {
  const auto engine = tiny_engine();
  std::vector<std::thread> threads;
  std::atomic<int> done{0};
  for (unsigned t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 8; ++i) {
        auto generation = engine->chat(
            chat_request({message(Role::kUser, filler(static_cast<int>(random() % 60), t))}, 8));
        if (!generation.ok()) continue;
        if (random() % 4 == 0) (*generation)->cancel();
        if ((*generation)->wait().ok()) ++done;
        engine->stats();
        engine->sessions();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(done.load(), 48);
}

}  // namespace
}  // namespace ikv::testing
