// What an Engine and a generation can be told. Plain structs with the defaults that the command
// line and the server use too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ikv {

/// How an Engine is set up. A zero means "choose for me" where the comment says so.
struct EngineConfig {
  std::string model_path;        ///< a GGUF file
  int num_threads = 0;           ///< threads that compute; 0: one per core this process may use
  int context_tokens = 0;        ///< longest session; 0: the model's own context
  uint64_t kv_memory_bytes = 0;  ///< hard cap of all cache memory; 0: a quarter of free memory
  std::string cache_type_k = "int8";  ///< f32, f16, bf16, int8 (q8_0), int4 (q4_0)
  std::string cache_type_v = "int8";
  /// "off": everything is kept and read. "intent": per turn and per step, from what the turn is
  /// about, it is decided what stays in full precision and what attention reads.
  std::string kv_policy = "off";
  std::string kv_attend;           ///< level 2: "12.5%", "900", "mass=0.98", "all"; empty: 12.5%
  int kv_attend_min_tokens = 512;  ///< shorter histories are not pruned
  std::string kv_resident;         ///< level 1: "25%", "256MiB", "all"; empty: 25%
  /// What level 1 ranks pages by: "exact" (default), "code", "moment", "box", "minmax", "dot",
  /// "cosine", "lexical", "recent", "random", "lru".
  std::string kv_page_scorer = "exact";
  /// Whose queries it ranks them against: "span" (default), "first", "memory", "span+memory",
  /// "stated".
  std::string kv_intent = "span";
  int block_tokens = 32;           ///< tokens per block, a multiple of 16 in 16..128
  int prefill_chunk_tokens = 512;  ///< most prompt tokens evaluated in one step
  int max_parallel = 16;           ///< most generations that run at once; more wait
  int max_queue = 256;             ///< most generations that wait; more are refused (kBusy)
  /// Called during Engine::create() while long work goes on: what it is, how much is done of how
  /// much. From any thread, one call at a time.
  std::function<void(std::string_view what, size_t done, size_t all)> on_progress;
  int max_sessions = 256;  ///< sessions remembered; the least recently used one goes first
};

/// How one reply is made. Names and defaults are llama.cpp's where it has them.
struct GenerationConfig {
  int max_tokens = -1;          ///< -1: until the model stops or the context is full
  float temperature = 0.8f;     ///< 0: greedy
  int top_k = 40;               ///< 0: off
  float top_p = 0.95f;          ///< 1: off
  float min_p = 0.05f;          ///< 0: off
  float repeat_penalty = 1.0f;  ///< 1: off
  int repeat_last_n = 64;       ///< tokens that the penalties look at; -1: all
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::map<int32_t, float> logit_bias;  ///< added to a token's logit; -infinity bans it
  std::optional<uint64_t> seed;         ///< the same seed gives the same text; none: random
  std::vector<std::string> stop;        ///< the reply ends before the first of these texts
  int num_logprobs = -1;                ///< alternatives reported per token; -1: no logprobs
  bool ignore_eos = false;              ///< go on after an end-of-generation token
};

}  // namespace ikv
