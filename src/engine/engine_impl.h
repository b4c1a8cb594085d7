// EngineImpl: clients' threads hand requests over, one thread of the engine computes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/memory_ledger.h"
#include "base/thread_pool.h"
#include "engine/running_request.h"
#include "engine/session_store.h"
#include "engine/step_runner.h"
#include "engine/step_scheduler.h"
#include "intentkv/engine.h"
#include "kv/key_codes.h"
#include "kv/kv_pool.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ikv {

/// What create() loads; EngineImpl owns it.
struct EngineParts {
  EngineConfig config;  ///< without zeros: every choice is made
  std::string model_name;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;  ///< null: the reason is in template_error
  Error template_error;
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<Model> model;
  KvPolicy policy;
  KeyCodebooks codebooks;  ///< empty unless the policy prunes
  std::unique_ptr<MemoryLedger> ledger;
  MemoryLedger::Charge scratch_charge;
  std::unique_ptr<KvPool> pool;
};

/// See Engine. Requests wait in a queue; the engine's thread admits them in order, plans steps,
/// runs them and ends replies. All that touches pool and sessions happens on that thread; other
/// threads' questions about them travel as tasks.
class EngineImpl : public Engine {
 public:
  explicit EngineImpl(EngineParts parts);
  ~EngineImpl() override;

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
  using RequestPtr = std::unique_ptr<RunningRequest>;

  /// Wakes the engine's thread; handles hold it so that a late cancel() cannot reach a dead engine.
  struct Waker {
    std::mutex mutex;
    std::condition_variable changed;
    bool pending = false;
    void wake();
  };

  // Clients' threads.
  Result<std::shared_ptr<Generation>> submit(RequestPtr request, const GenerationConfig& config,
                                             EventCallback on_event);
  Status check_length(const RunningRequest& request) const;
  uint64_t intern_salt(const std::string& salt);
  void run_on_engine_thread(std::function<void()> task) const;

  // Engine's thread: engine_loop.cc.
  void loop();
  void drain_tasks();
  void drop_cancelled();
  void run_step();
  StepRows make_rows(RunningRequest& request, int32_t count);
  StepPlan plan_step();
  void advance(RequestPtr& request, size_t logit_row);
  void extend_promise(RunningRequest& request);
  void publish_stats();
  void fail_all(const Error& error);

  // Level 1: engine_turn.cc. The first two on clients' threads.
  Status set_intent(RunningRequest& running, const StatedIntent& stated,
                    const std::vector<int32_t>& pins) const;
  Status check_pins(const RunningRequest& running, const std::vector<int32_t>& pins) const;
  std::optional<IntentQueries> read_stated_intent(RunningRequest& request);
  void begin_turn(RunningRequest& request, const PageMass& mass);
  Status decide_residency(RunningRequest& request, const PageMass& mass);
  void remember_reply_intent(RunningRequest& request, const Message& reply);

  // Engine's thread: engine_admission.cc.
  void admit();
  enum class Admission { kAdmitted, kWait, kRefused };
  Admission try_admit(RunningRequest& request);
  Admission place_chat(RunningRequest& request);
  Status prepare_sequence(RunningRequest& request, int32_t num_common);
  Admission promise_memory(RunningRequest& request);
  Status promise_with_reclaim(RunningRequest& request, int32_t num_tokens);
  void undo_admission(RunningRequest& request);

  // Engine's thread: engine_finish.cc.
  void finish(RunningRequest& request, FinishReason reason);
  void fail(RunningRequest& request, Error error);
  void describe_policy(const RunningRequest& request, KvUsage& usage) const;
  void make_audit(const RunningRequest& request, GenerationResult& result) const;
  void remember_reply(RunningRequest& request, GenerationResult& result);
  void release(RunningRequest& request);

  EngineParts parts_;
  StepRunner runner_;
  TurnIntent turn_intent_;
  StepScheduler scheduler_;
  SessionStore sessions_;

  std::vector<RequestPtr> running_;  ///< engine's thread only
  std::deque<RequestPtr> waiting_;   ///< guarded by mutex_
  bool stopping_ = false;            ///< guarded by mutex_
  mutable std::mutex mutex_;
  mutable std::vector<std::function<void()>> tasks_;  ///< guarded by mutex_
  std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  std::unordered_map<std::string, uint64_t> salts_;  ///< guarded by mutex_
  std::atomic<uint64_t> requests_refused_{0};        ///< by clients' threads and the engine's
  EngineStats stats_;                                ///< engine's thread only
  mutable std::mutex stats_mutex_;
  EngineStats published_;  ///< guarded by stats_mutex_
  std::thread thread_;
};

/// Name of a session in the store: clients of different salts never meet, even under equal ids.
std::string session_store_key(const std::string& id, const std::string& salt);

}  // namespace ikv
