// Incremental turns and memory on the real model and real conversations.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "engine_fixture.h"

namespace ikv::testing {
namespace {

std::string model_path() {
  const char* path = std::getenv("IKV_TEST_MODEL");
  return path != nullptr ? path : IKV_SOURCE_DIR "/models/smollm2-135m-instruct-q4_1.gguf";
}

std::string data_path(const std::string& file) {
  const char* folder = std::getenv("IKV_DATA_DIR");
  return (folder != nullptr ? folder : std::string(IKV_SOURCE_DIR "/../shared/data")) + "/" + file;
}

size_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  size_t size = 0;
  size_t resident = 0;
  in >> size >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

class EngineRealModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::ifstream(model_path())) {
      GTEST_SKIP() << "no model at " << model_path() << "; `make model` fetches it";
    }
  }
  static std::unique_ptr<Engine> engine(uint64_t kv_memory_bytes) {
    EngineConfig config;
    config.model_path = model_path();
    config.num_threads = 2;
    config.kv_memory_bytes = kv_memory_bytes;
    return tiny_engine(config);
  }
};

// The user's side of the longest recorded dialogue, with the model's own replies.
TEST_F(EngineRealModelTest, ThirtyTurnsEvaluateWhatIsNewPlusAtMostAPage) {
  std::ifstream in(data_path("dialog_en.jsonl"));
  if (!in) GTEST_SKIP() << "no shared conversations; set IKV_DATA_DIR";
  std::vector<std::string> users;
  for (std::string line; std::getline(in, line) && users.size() < 30;) {
    users.clear();
    const nlohmann::json conversation = nlohmann::json::parse(line);
    for (const auto& m : conversation["messages"]) {
      if (m["role"] == "user") users.push_back(m["content"].get<std::string>());
    }
  }
  ASSERT_GE(users.size(), 30u);
  const auto ours = engine(512u << 20);
  ASSERT_NE(ours, nullptr);
  std::vector<Message> messages;
  int32_t stored = 0;
  std::printf("turn  prompt  cached  new  evaluated\n");
  for (size_t turn = 0; turn < 30; ++turn) {
    messages.push_back(message(Role::kUser, users[turn]));
    ChatRequest request = chat_request(messages, 24);
    request.generation.ignore_eos = false;
    const GenerationResult result = run_chat(*ours, std::move(request));
    const Usage& usage = result.usage;
    const int32_t fresh = usage.prompt_tokens - stored;
    std::printf("%4zu  %6d  %6d  %3d  %9d\n", turn + 1, usage.prompt_tokens, usage.cached_tokens,
                fresh, usage.evaluated_tokens);
    EXPECT_LE(usage.evaluated_tokens, fresh + 32) << "turn " << turn;
    EXPECT_TRUE(usage.divergences.empty()) << "turn " << turn;
    stored = usage.prompt_tokens + usage.completion_tokens;
    messages.push_back(result.message);
  }
}

TEST_F(EngineRealModelTest, ResidentMemoryStaysWithinWeightsAndCapOverTwoHundredSessions) {
  constexpr uint64_t kCap = 160u << 20;
  const size_t before = resident_bytes();
  const auto ours = engine(kCap);
  ASSERT_NE(ours, nullptr);
  const size_t weights = ours->stats().weight_bytes;
  size_t peak = 0;
  for (unsigned i = 0; i < 200; ++i) {
    const int words = static_cast<int>(10 + (i * i * 37) % 300);
    run_chat(*ours, chat_request({message(Role::kUser, filler(words, i))}, 2));
    peak = std::max(peak, resident_bytes() - before);
  }
  std::printf("weights %.1f MiB, cap %.1f MiB, resident at most %.1f MiB\n",
              static_cast<double>(weights) / 1048576, static_cast<double>(kCap) / 1048576,
              static_cast<double>(peak) / 1048576);
  // Tokenizer and template stand beside the weights; 10 % of slack is the issue's own.
  EXPECT_LE(static_cast<double>(peak), 1.1 * static_cast<double>(weights + kCap));
  EXPECT_LE(ours->stats().kv_peak_bytes, kCap);
}

}  // namespace
}  // namespace ikv::testing
