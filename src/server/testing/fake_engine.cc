#include "server/testing/fake_engine.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "text/tool_call_parser.h"

namespace ikv {

/// Runs on its own thread; the handle cancels when it goes, as the real one does.
class FakeEngine::FakeGeneration : public Generation {
 public:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool cancelled = false;
    std::optional<GenerationResult> result;
    std::optional<Error> error;
  };

  explicit FakeGeneration(std::shared_ptr<State> state) : state_(std::move(state)) {}
  ~FakeGeneration() override { cancel(); }

  Result<GenerationEvent> next() override {
    return make_error(ErrorCode::kInternal, "the fake reports to its callback");
  }
  Result<GenerationResult> wait() override {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return state_->result || state_->error; });
    if (state_->error) return *state_->error;
    return *state_->result;
  }
  void cancel() override {
    const std::lock_guard lock(state_->mutex);
    state_->cancelled = true;
    state_->changed.notify_all();
  }
  bool finished() const override {
    const std::lock_guard lock(state_->mutex);
    return state_->result || state_->error;
  }

 private:
  std::shared_ptr<State> state_;
};

FakeEngine::~FakeEngine() {
  for (std::thread& thread : threads_) thread.join();
}

void FakeEngine::set_script(FakeScript script) {
  const std::lock_guard lock(mutex_);
  script_ = std::move(script);
}

ChatRequest FakeEngine::last_chat() const {
  const std::lock_guard lock(mutex_);
  return last_chat_;
}

std::vector<CompletionRequest> FakeEngine::completions() const {
  const std::lock_guard lock(mutex_);
  return completions_;
}

Result<std::shared_ptr<Generation>> FakeEngine::chat(ChatRequest request, EventCallback on_event) {
  const GenerationConfig config = request.generation;
  const bool tools = !request.tools_json.empty();
  const std::string id = request.session_id.empty() ? "found" : request.session_id;
  {
    const std::lock_guard lock(mutex_);
    last_chat_ = std::move(request);
  }
  return start(config, tools, id, std::move(on_event));
}

Result<std::shared_ptr<Generation>> FakeEngine::complete(CompletionRequest request,
                                                         EventCallback on_event) {
  const GenerationConfig config = request.generation;
  {
    const std::lock_guard lock(mutex_);
    completions_.push_back(std::move(request));
  }
  return start(config, false, "", std::move(on_event));
}

// One script of events, read from top to bottom.
// NOLINTNEXTLINE(readability-function-size)
Result<std::shared_ptr<Generation>> FakeEngine::start(const GenerationConfig& config, bool tools,
                                                      std::string session_id,
                                                      EventCallback on_event) {
  const std::lock_guard lock(mutex_);
  if (script_.refuse) return *script_.refuse;
  if (!session_id.empty() &&
      std::find(sessions_.begin(), sessions_.end(), session_id) == sessions_.end()) {
    sessions_.push_back(session_id);
  }
  auto state = std::make_shared<FakeGeneration::State>();
  ++num_running_;
  threads_.emplace_back([this, state, config, tools, script = script_,
                         session_id = std::move(session_id), on_event = std::move(on_event)] {
    GenerationResult result;
    const auto pause = [&](int ms) {  // true: cancelled
      std::unique_lock waiting(state->mutex);
      return state->changed.wait_for(waiting, std::chrono::milliseconds(ms),
                                     [&] { return state->cancelled; });
    };
    bool cancelled = pause(script.delay_before_first_ms);
    for (size_t i = 0; i < script.pieces.size() && !cancelled && !script.fail; ++i) {
      if (config.max_tokens >= 0 && static_cast<int>(i) >= config.max_tokens) {
        result.finish_reason = FinishReason::kLength;
        break;
      }
      GenerationEvent event;
      event.text = script.pieces[i];
      if (config.num_logprobs >= 0) {
        SampledToken token;
        token.chosen = {static_cast<int32_t>(i), script.pieces[i], -0.5f};
        token.alternatives.assign(static_cast<size_t>(config.num_logprobs), token.chosen);
        event.tokens.push_back(token);
        result.tokens.push_back(token);
      }
      result.text += event.text;
      ++result.usage.completion_tokens;
      ++steps_;
      on_event(event);
      cancelled = pause(script.delay_between_ms);
    }
    if (cancelled) {
      result.finish_reason = FinishReason::kCancelled;
      ++num_cancelled_;
    } else if (result.finish_reason == FinishReason::kStop) {
      result.finish_reason = script.finish_reason;
    }
    result.message.role = Role::kAssistant;
    result.message.content = result.text;
    if (tools) {
      ToolCallDelta parsed = parse_tool_calls(result.text);
      if (!parsed.tool_calls.empty()) {
        result.message.content =
            parsed.text.empty() ? std::nullopt : std::optional<std::string>(parsed.text);
        result.message.tool_calls = std::move(parsed.tool_calls);
        result.finish_reason = FinishReason::kToolCalls;
      }
    }
    result.session_id = session_id;
    result.usage.prompt_tokens = 10;
    result.usage.cached_tokens = script.cached_tokens;
    result.usage.evaluated_tokens = 10 - script.cached_tokens;
    {
      const std::lock_guard done(state->mutex);
      if (script.fail) {
        state->error = *script.fail;
      } else {
        state->result = std::move(result);
      }
      state->changed.notify_all();
    }
    --num_running_;
    GenerationEvent last;
    last.finished = true;
    on_event(last);
  });
  return std::shared_ptr<Generation>(std::make_shared<FakeGeneration>(std::move(state)));
}

std::vector<int32_t> FakeEngine::tokenize(const std::string& text, bool, bool add_bos) const {
  std::vector<int32_t> tokens;
  if (add_bos) tokens.push_back(256);
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

Result<std::string> FakeEngine::detokenize(const std::vector<int32_t>& tokens) const {
  std::string text;
  for (const int32_t token : tokens) {
    if (token < 0 || token > 255) return invalid_argument("unknown token");
    text += static_cast<char>(token);
  }
  return text;
}

Result<std::string> FakeEngine::apply_template(const ChatRequest& request) const {
  std::string text;
  for (const Message& message : request.messages) {
    text += std::string(role_name(message.role)) + ": " + message.content.value_or("") + "\n";
  }
  return text;
}

std::vector<SessionInfo> FakeEngine::sessions() const {
  const std::lock_guard lock(mutex_);
  std::vector<SessionInfo> infos;
  infos.reserve(sessions_.size());
  for (const std::string& id : sessions_) infos.push_back({id, 10, 10, 1, false});
  return infos;
}

Status FakeEngine::fork_session(const std::string& id, const std::string& new_id) {
  const std::lock_guard lock(mutex_);
  if (std::find(sessions_.begin(), sessions_.end(), id) == sessions_.end()) {
    return make_error(ErrorCode::kNotFound, "no session '" + id + "'");
  }
  sessions_.push_back(new_id);
  return {};
}

Status FakeEngine::close_session(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(sessions_.begin(), sessions_.end(), id);
  if (found == sessions_.end()) return make_error(ErrorCode::kNotFound, "no session '" + id + "'");
  sessions_.erase(found);
  return {};
}

ModelInfo FakeEngine::model_info() const {
  return {"fake", "test", 1, 4096, 4096, 257, 1, true};
}

EngineStats FakeEngine::stats() const {
  EngineStats stats;
  stats.running = num_running_.load();
  stats.steps = steps_.load();
  stats.kv_cap_bytes = 1000;
  stats.kv_used_bytes = 250;
  return stats;
}

}  // namespace ikv
