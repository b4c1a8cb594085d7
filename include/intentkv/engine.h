// Engine: loads a model and serves many sessions from one cache.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "intentkv/config.h"
#include "intentkv/generation.h"
#include "intentkv/intent.h"
#include "intentkv/message.h"
#include "intentkv/result.h"

namespace ikv {

/// A whole conversation, to which the model shall reply. The history is re-sent each time, as with
/// OpenAI's API; what the cache holds of it is not evaluated again.
struct ChatRequest {
  std::vector<Message> messages;
  std::string tools_json;            ///< JSON array of OpenAI tool objects; empty: none
  std::string template_kwargs_json;  ///< JSON object of further template variables; empty: none
  std::string session_id;            ///< empty: found by content, or new
  std::string cache_salt;            ///< requests with different salts never share cache
  GenerationConfig generation;
  /// With kv_policy "intent": what the turn is about. It is read in a side branch after the prompt
  /// and decides, with the newest message, what stays in full precision; it leaves no trace in
  /// transcript, cache or sampler. At most a prefill chunk long.
  StatedIntent intent;
  /// Indices of messages whose cache is not demoted for this reply. Refused when they alone need
  /// more than the budget of kv_resident.
  std::vector<int32_t> pins;
  bool audit = false;  ///< GenerationResult::audit is wanted
};

/// A plain text to continue, without a chat template.
struct CompletionRequest {
  std::string prompt;  ///< used when prompt_tokens is empty
  std::vector<int32_t> prompt_tokens;
  bool parse_special = true;  ///< control tokens written in `prompt` are control tokens
  std::string cache_salt;
  GenerationConfig generation;
  bool audit = false;  ///< GenerationResult::audit is wanted
};

/// What the model file says.
struct ModelInfo {
  std::string name;
  std::string architecture;
  int64_t num_parameters = 0;
  int32_t context_tokens = 0;          ///< the model's own
  int32_t session_context_tokens = 0;  ///< the engine's limit for one session
  int32_t vocab_size = 0;
  int32_t num_layers = 0;
  bool has_chat_template = false;
};

/// One stored session.
struct SessionInfo {
  std::string id;
  int32_t num_tokens = 0;         ///< transcript
  int32_t num_cached_tokens = 0;  ///< with keys and values in the pool
  int32_t num_messages = 0;
  bool busy = false;
};

/// Counters since start, and gauges.
struct EngineStats {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t sessions = 0;
  uint64_t steps = 0;
  uint64_t prompt_tokens_evaluated = 0;
  uint64_t prompt_tokens_cached = 0;
  uint64_t completion_tokens = 0;
  uint64_t requests_refused = 0;
  uint64_t kv_cap_bytes = 0;
  uint64_t kv_used_bytes = 0;
  uint64_t kv_peak_bytes = 0;
  uint64_t weight_bytes = 0;
};

/// A loaded model with its cache. Thread-safe: any thread may call any function. One thread of the
/// engine computes; idle, it sleeps. Several generations on one session are serialised in the order
/// in which they came.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Loads the model and starts the engine's thread. Errors name the flag or the file's fault.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config);

  /// Queues a reply. Errors: kInvalidArgument (messages, template, parameters), kContextExceeded,
  /// kOutOfMemory (cannot fit even when everything idle is dropped), kBusy (queue full).
  virtual Result<std::shared_ptr<Generation>> chat(ChatRequest request,
                                                   EventCallback on_event = {}) = 0;
  /// Queues a continuation of plain text. Errors as chat().
  virtual Result<std::shared_ptr<Generation>> complete(CompletionRequest request,
                                                       EventCallback on_event = {}) = 0;

  /// Text to tokens; `parse_special`: control tokens in the text become control tokens.
  virtual std::vector<int32_t> tokenize(const std::string& text, bool parse_special,
                                        bool add_bos) const = 0;
  /// Tokens to text; unknown ids are refused, broken UTF-8 becomes U+FFFD.
  virtual Result<std::string> detokenize(const std::vector<int32_t>& tokens) const = 0;
  /// The prompt text that chat() would evaluate.
  virtual Result<std::string> apply_template(const ChatRequest& request) const = 0;

  /// Stored sessions, most recently used first.
  virtual std::vector<SessionInfo> sessions() const = 0;
  /// Copies a session under a new id, sharing its pages. Errors: kNotFound, kBusy.
  virtual Status fork_session(const std::string& id, const std::string& new_id) = 0;
  /// Forgets a session; its unshared pages become reclaimable. Errors: kNotFound, kBusy.
  virtual Status close_session(const std::string& id) = 0;

  virtual ModelInfo model_info() const = 0;
  virtual EngineStats stats() const = 0;
};

/// A named session of an engine: the same as sending ChatRequests with that session_id.
class Session {
 public:
  Session(Engine& engine, std::string id) : engine_(&engine), id_(std::move(id)) {}

  /// Replies to the whole conversation `messages`.
  Result<std::shared_ptr<Generation>> chat(std::vector<Message> messages,
                                           GenerationConfig generation = {},
                                           EventCallback on_event = {}) {
    ChatRequest request;
    request.messages = std::move(messages);
    request.session_id = id_;
    request.generation = std::move(generation);
    return engine_->chat(std::move(request), std::move(on_event));
  }
  Result<Session> fork(std::string new_id) {
    Status status = engine_->fork_session(id_, new_id);
    if (!status.ok()) return status.error();
    return Session(*engine_, std::move(new_id));
  }
  Status close() { return engine_->close_session(id_); }
  const std::string& id() const { return id_; }

 private:
  Engine* engine_;
  std::string id_;
};

}  // namespace ikv
