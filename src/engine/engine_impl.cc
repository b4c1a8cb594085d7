// The clients' side of the engine: checks and hands over, on the caller's thread.
#include "engine/engine_impl.h"

#include <algorithm>
#include <future>
#include <utility>

#include "base/clock.h"

namespace ikv {

std::string session_store_key(const std::string& id, const std::string& salt) {
  return salt.empty() ? id : id + '\x1f' + salt;
}

EngineImpl::EngineImpl(EngineParts parts)
    : parts_(std::move(parts)),
      runner_(*parts_.model, *parts_.pool, parts_.codebooks.empty() ? nullptr : &parts_.codebooks,
              *parts_.threads),
      turn_intent_(*parts_.model, *parts_.pool,
                   parts_.codebooks.empty() ? nullptr : &parts_.codebooks, *parts_.threads,
                   parts_.policy.pages),
      scheduler_(parts_.config.prefill_chunk_tokens),
      sessions_(*parts_.pool, static_cast<size_t>(parts_.config.max_sessions),
                [this](KvSequenceId sequence) { runner_.forget(sequence); }) {
  publish_stats();
  thread_ = std::thread([this] { loop(); });
}

EngineImpl::~EngineImpl() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  waker_->wake();
  thread_.join();
}

uint64_t EngineImpl::intern_salt(const std::string& salt) {
  if (salt.empty()) return 0;
  const std::lock_guard lock(mutex_);
  return salts_.try_emplace(salt, salts_.size() + 1).first->second;
}

Status EngineImpl::check_length(const RunningRequest& request) const {
  const int32_t context = parts_.config.context_tokens;
  const int32_t prompt = request.num_prompt_tokens();
  if (prompt == 0) return invalid_argument("the prompt is empty");
  if (prompt < context || (prompt == context && request.max_tokens == 0)) return {};
  return make_error(ErrorCode::kContextExceeded,
                    "the prompt has " + std::to_string(prompt) +
                        " tokens; with at least one token of reply that is more than the context "
                        "of " +
                        std::to_string(context) + " tokens");
}

Result<std::shared_ptr<Generation>> EngineImpl::submit(RequestPtr request,
                                                       const GenerationConfig& config,
                                                       EventCallback on_event) {
  if (config.max_tokens < -1) {
    return invalid_argument("max_tokens must be -1 or more; got " +
                            std::to_string(config.max_tokens));
  }
  request->max_tokens = config.max_tokens;
  IKV_RETURN_IF_ERROR(check_length(*request));
  IKV_ASSIGN_OR_RETURN(request->reply, Reply::create(config, *parts_.tokenizer));
  auto state = std::make_shared<GenerationState>(std::move(on_event));
  request->state = state;
  request->submitted_us = now_us();
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() > static_cast<size_t>(parts_.config.max_queue)) {
      ++requests_refused_;
      return make_error(ErrorCode::kBusy, "the queue is full: " + std::to_string(waiting_.size()) +
                                              " requests wait; try again later");
    }
    waiting_.push_back(std::move(request));
  }
  waker_->wake();
  const auto on_cancel = [waker = waker_] { waker->wake(); };
  return std::shared_ptr<Generation>(
      std::make_shared<GenerationHandle>(std::move(state), on_cancel));
}

Result<std::shared_ptr<Generation>> EngineImpl::chat(ChatRequest request, EventCallback on_event) {
  if (parts_.chat_template == nullptr) return parts_.template_error;
  if (request.messages.empty()) return invalid_argument("messages must not be empty");
  if (request.session_id.find('\x1f') != std::string::npos) {
    return invalid_argument("a session id must not hold control characters");
  }
  auto running = std::make_unique<RunningRequest>();
  const ChatRenderOptions options{request.tools_json, request.template_kwargs_json, true};
  IKV_ASSIGN_OR_RETURN(running->prompt, parts_.chat_template->tokenize(request.messages, options));
  running->is_chat = true;
  running->expects_tool_calls =
      !request.tools_json.empty() && parts_.chat_template->has_hermes_calls();
  running->share_key.policy_id = parts_.policy.id();
  running->share_key.salt = intern_salt(request.cache_salt);
  if (!request.session_id.empty()) {
    running->session_key = session_store_key(request.session_id, request.cache_salt);
  }
  running->messages = std::move(request.messages);
  IKV_RETURN_IF_ERROR(set_intent(*running, request.intent, request.pins));
  if (request.audit) running->audit = std::make_unique<AuditRecorder>();
  return submit(std::move(running), request.generation, std::move(on_event));
}

Result<std::shared_ptr<Generation>> EngineImpl::complete(CompletionRequest request,
                                                         EventCallback on_event) {
  auto running = std::make_unique<RunningRequest>();
  running->share_key.policy_id = parts_.policy.id();
  running->share_key.salt = intern_salt(request.cache_salt);
  if (request.prompt_tokens.empty()) {
    running->prompt.tokens = tokenize(request.prompt, request.parse_special, true);
  } else {
    running->prompt.tokens = std::move(request.prompt_tokens);
    for (const int32_t token : running->prompt.tokens) {
      if (token < 0 || token >= parts_.tokenizer->vocab_size()) {
        return invalid_argument("prompt token " + std::to_string(token) +
                                " is outside the vocabulary of " +
                                std::to_string(parts_.tokenizer->vocab_size()));
      }
    }
  }
  if (request.audit) running->audit = std::make_unique<AuditRecorder>();
  const auto size = static_cast<LogicalPos>(running->prompt.tokens.size());
  IKV_RETURN_IF_ERROR(set_intent(*running, {}, {}));
  running->prompt.spans = {{0, size, -1, Role::kUser, SpanPart::kContent, false}};
  return submit(std::move(running), request.generation, std::move(on_event));
}

std::vector<int32_t> EngineImpl::tokenize(const std::string& text, bool parse_special,
                                          bool add_bos) const {
  std::vector<int32_t> tokens;
  if (add_bos && parts_.tokenizer->add_bos() && parts_.tokenizer->bos() != kNoToken) {
    tokens.push_back(parts_.tokenizer->bos());
  }
  auto encoded = parts_.tokenizer->encode(text, parse_special);
  if (encoded.ok()) tokens.insert(tokens.end(), encoded->begin(), encoded->end());
  return tokens;
}

Result<std::string> EngineImpl::detokenize(const std::vector<int32_t>& tokens) const {
  return parts_.tokenizer->decode(tokens, true);
}

Result<std::string> EngineImpl::apply_template(const ChatRequest& request) const {
  if (parts_.chat_template == nullptr) return parts_.template_error;
  return parts_.chat_template->render(request.messages,
                                      {request.tools_json, request.template_kwargs_json, true});
}

void EngineImpl::run_on_engine_thread(std::function<void()> task) const {
  std::promise<void> done;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back([&] {
      task();
      done.set_value();
    });
  }
  waker_->wake();
  done.get_future().wait();
}

std::vector<SessionInfo> EngineImpl::sessions() const {
  std::vector<std::pair<uint64_t, SessionInfo>> found;
  run_on_engine_thread([&] {
    for (const auto& [key, record] : sessions_.all()) {
      SessionInfo info;
      info.id = key.substr(0, key.find('\x1f'));
      info.num_tokens = static_cast<int32_t>(record->transcript.chat.tokens.size());
      info.num_cached_tokens = record->sequence ? parts_.pool->length(*record->sequence) : 0;
      info.num_messages = static_cast<int32_t>(record->transcript.messages.size());
      info.busy = record->busy;
      found.emplace_back(record->last_used, std::move(info));
    }
  });
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<SessionInfo> infos;
  infos.reserve(found.size());
  for (auto& [used, info] : found) infos.push_back(std::move(info));
  return infos;
}

Status EngineImpl::fork_session(const std::string& id, const std::string& new_id) {
  Status status;
  run_on_engine_thread([&] {
    SessionRecord* record = sessions_.find(id);
    if (record == nullptr) {
      status = make_error(ErrorCode::kNotFound, "no session '" + id + "'");
    } else if (record->busy) {
      status = make_error(ErrorCode::kBusy, "session '" + id + "' is in use");
    } else {
      auto copy = sessions_.fork(*record, new_id);
      if (!copy.ok()) status = copy.error();
    }
  });
  return status;
}

Status EngineImpl::close_session(const std::string& id) {
  Status status;
  run_on_engine_thread([&] {
    SessionRecord* record = sessions_.find(id);
    if (record == nullptr) {
      status = make_error(ErrorCode::kNotFound, "no session '" + id + "'");
    } else if (record->busy) {
      status = make_error(ErrorCode::kBusy, "session '" + id + "' is in use");
    } else {
      sessions_.erase(id);
    }
  });
  return status;
}

ModelInfo EngineImpl::model_info() const {
  const ModelConfig& config = parts_.model->config();
  ModelInfo info;
  info.name = parts_.model_name;
  info.architecture = config.architecture;
  info.num_parameters = static_cast<int64_t>(config.num_parameters);
  info.context_tokens = config.context_tokens;
  info.session_context_tokens = parts_.config.context_tokens;
  info.vocab_size = config.vocab_size;
  info.num_layers = config.num_layers;
  info.has_chat_template = parts_.chat_template != nullptr;
  return info;
}

EngineStats EngineImpl::stats() const {
  EngineStats stats;
  {
    const std::lock_guard lock(stats_mutex_);
    stats = published_;
  }
  stats.requests_refused = requests_refused_;
  const std::lock_guard lock(mutex_);
  stats.waiting = static_cast<int32_t>(waiting_.size());
  stats.weight_bytes = parts_.model->weight_bytes();
  return stats;
}

}  // namespace ikv
