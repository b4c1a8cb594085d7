// A whole engine on a tiny random model, for tests of sessions, batches and memory.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gguf/testing/tiny_model.h"
#include "intentkv/engine.h"

namespace ikv::testing {

/// Path of a tiny model, written once a process.
inline const std::string& tiny_model_path() {
  static const std::string path = [] {
    TinyModelOptions options;
    options.context_tokens = 1024;
    options.type = WeightType::kQ4_1;
    const std::string file =
        ::testing::TempDir() + "/engine_test_" + std::to_string(getpid()) + ".gguf";
    EXPECT_TRUE(write_tiny_llama(file, options).ok());
    return file;
  }();
  return path;
}

inline EngineConfig tiny_config() {
  EngineConfig config;
  config.model_path = tiny_model_path();
  config.num_threads = 2;
  config.kv_memory_bytes = 64u << 20;
  config.prefill_chunk_tokens = 64;
  return config;
}

inline std::unique_ptr<Engine> tiny_engine(const EngineConfig& config = tiny_config()) {
  auto engine = Engine::create(config);
  EXPECT_TRUE(engine.ok()) << engine.error().message;
  return engine.ok() ? std::move(engine).value() : nullptr;
}

inline Message message(Role role, std::string content) {
  Message m;
  m.role = role;
  m.content = std::move(content);
  return m;
}

inline GenerationConfig greedy(int max_tokens) {
  GenerationConfig generation;
  generation.temperature = 0;
  generation.max_tokens = max_tokens;
  generation.ignore_eos = true;  // a random model ends when it likes
  return generation;
}

inline ChatRequest chat_request(std::vector<Message> messages, int max_tokens,
                                std::string session = "") {
  ChatRequest request;
  request.messages = std::move(messages);
  request.session_id = std::move(session);
  request.generation = greedy(max_tokens);
  return request;
}

inline GenerationResult run_chat(Engine& engine, ChatRequest request) {
  auto generation = engine.chat(std::move(request));
  EXPECT_TRUE(generation.ok()) << generation.error().message;
  if (!generation.ok()) return {};
  auto result = (*generation)->wait();
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : GenerationResult{};
}

/// Varied text of about so many tokens.
inline std::string filler(int words, unsigned seed) {
  std::string text;
  for (int i = 0; i < words; ++i) {
    seed = seed * 1664525u + 1013904223u;
    text += static_cast<char>('a' + (seed >> 24) % 26);
    text += static_cast<char>('a' + (seed >> 16) % 26);
    text += ' ';
  }
  return text;
}

}  // namespace ikv::testing
