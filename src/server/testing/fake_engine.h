// An Engine that says what a test tells it to, at a pace that the test sets.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "intentkv/engine.h"

namespace ikv {

/// How the fake replies.
struct FakeScript {
  std::vector<std::string> pieces = {"Hello", ", ", "world"};
  int delay_before_first_ms = 0;  ///< the prefill
  int delay_between_ms = 0;
  FinishReason finish_reason = FinishReason::kStop;
  std::optional<Error> refuse;  ///< chat() and complete() fail at once
  std::optional<Error> fail;    ///< the generation fails before its first piece
  int32_t cached_tokens = 3;
};

/// Scripted engine; one thread a generation. Tokens are bytes. Thread-safe.
class FakeEngine : public Engine {
 public:
  FakeEngine() = default;
  ~FakeEngine() override;

  void set_script(FakeScript script);
  /// The last request that chat() got.
  ChatRequest last_chat() const;
  std::vector<CompletionRequest> completions() const;
  int num_cancelled() const { return num_cancelled_.load(); }
  int num_running() const { return num_running_.load(); }

  Result<std::shared_ptr<Generation>> chat(ChatRequest request, EventCallback on_event) override;
  Result<std::shared_ptr<Generation>> complete(CompletionRequest request,
                                               EventCallback on_event) override;
  std::vector<int32_t> tokenize(const std::string& text, bool parse_special,
                                bool add_bos) const override;
  Result<std::string> detokenize(const std::vector<int32_t>& tokens) const override;
  Result<std::string> apply_template(const ChatRequest& request) const override;
  std::vector<SessionInfo> sessions() const override;
  Status fork_session(const std::string& id, const std::string& new_id) override;
  Status close_session(const std::string& id) override;
  ModelInfo model_info() const override;
  EngineStats stats() const override;

 private:
  class FakeGeneration;
  Result<std::shared_ptr<Generation>> start(const GenerationConfig& config, bool tools,
                                            std::string session_id, EventCallback on_event);

  mutable std::mutex mutex_;
  FakeScript script_;
  ChatRequest last_chat_;
  std::vector<CompletionRequest> completions_;
  std::vector<std::string> sessions_;
  std::vector<std::thread> threads_;
  std::atomic<int> num_cancelled_{0};
  std::atomic<int> num_running_{0};
  std::atomic<uint64_t> steps_{0};
};

}  // namespace ikv
