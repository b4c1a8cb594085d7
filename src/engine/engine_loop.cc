// The engine's thread: tasks, cancellations, admission, steps.
#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine_impl.h"

namespace ikv {
namespace {

// A reply without max_tokens grows by steps of so many promised tokens.
constexpr int32_t kPromiseStep = 256;

}  // namespace

void EngineImpl::Waker::wake() {
  {
    const std::lock_guard lock(mutex);
    pending = true;
  }
  changed.notify_one();
}

void EngineImpl::loop() {
  while (true) {
    drain_tasks();
    drop_cancelled();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    admit();
    publish_stats();
    if (!running_.empty()) {
      run_step();
      continue;
    }
    std::unique_lock lock(waker_->mutex);
    waker_->changed.wait(lock, [&] { return waker_->pending; });
    waker_->pending = false;
  }
  fail_all(make_error(ErrorCode::kCancelled, "the engine is shutting down"));
  drain_tasks();
}

void EngineImpl::drain_tasks() {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (auto& task : tasks) task();
}

void EngineImpl::drop_cancelled() {
  std::vector<RequestPtr> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto& request : waiting_) {
      if (request->state->cancel_requested()) gone.push_back(std::move(request));
    }
    std::erase(waiting_, nullptr);
  }
  for (auto& request : running_) {
    if (request->state->cancel_requested()) gone.push_back(std::move(request));
  }
  std::erase(running_, nullptr);
  for (auto& request : gone) finish(*request, FinishReason::kCancelled);
}

void EngineImpl::fail_all(const Error& error) {
  std::deque<RequestPtr> waiting;
  {
    const std::lock_guard lock(mutex_);
    waiting.swap(waiting_);
  }
  for (auto& request : waiting) request->state->fail(error);
  for (auto& request : running_) fail(*request, error);
  running_.clear();
}

StepPlan EngineImpl::plan_step() {
  std::vector<SchedulableRequest> requests;
  requests.reserve(running_.size());
  for (const auto& request : running_) {
    requests.push_back(
        {request->num_prompt_tokens() - request->num_evaluated, request->decoding()});
  }
  return scheduler_.plan(requests);
}

StepRows EngineImpl::make_rows(RunningRequest& request, int32_t count) {
  StepRows r;
  r.sequence = request.sequence;
  r.decode = request.decoding();
  if (r.decode) {
    r.tokens = std::span(request.reply->tokens()).last(1);
    r.num_logit_rows = 1;
    r.attend = parts_.policy.prunes() ? &parts_.policy.attend : nullptr;
    request.last_step = {};
    r.stats = &request.last_step;
    if (request.intent != nullptr) r.queries = &request.intent->reply;
    if (request.audit != nullptr) {
      request.audit->note_step();
      request.audit->counter().grow(static_cast<size_t>(request.num_tokens()));
      r.counter = &request.audit->counter();
    }
    return r;
  }
  r.tokens = std::span<const TokenId>(request.prompt.tokens)
                 .subspan(static_cast<size_t>(request.num_evaluated), static_cast<size_t>(count));
  r.num_logit_rows = request.num_evaluated + count == request.num_prompt_tokens() ? 1 : 0;
  // The span's last queries decide on residency (design: section 5, level 1).
  if (r.num_logit_rows > 0 && (parts_.policy.demotes() || request.audit != nullptr)) {
    r.num_mass_rows = std::min(count, kSpanQueries);
  }
  if (request.intent != nullptr) r.queries = &request.intent->span;
  return r;
}

void EngineImpl::run_step() {
  const StepPlan plan = plan_step();
  std::vector<StepRows> rows;
  std::vector<size_t> owner;  // index into running_
  const int64_t now = now_us();
  for (size_t i = 0; i < running_.size(); ++i) {
    if (plan.num_tokens[i] == 0) continue;
    if (running_[i]->started_us == 0) running_[i]->started_us = now;
    rows.push_back(make_rows(*running_[i], plan.num_tokens[i]));
    owner.push_back(i);
  }
  Status status = runner_.run(rows);
  std::vector<PageMass> masses(rows.size());  // a side branch overwrites them
  for (size_t i = 0; i < rows.size(); ++i) masses[i] = runner_.attention().take_page_mass(i);
  ++stats_.steps;
  size_t logit_row = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    RequestPtr& request = running_[owner[i]];
    if (!status.ok()) {
      fail(*request, status.error());
      request.reset();
      continue;
    }
    if (!rows[i].decode) {
      request->num_evaluated += static_cast<int32_t>(rows[i].tokens.size());
      stats_.prompt_tokens_evaluated += rows[i].tokens.size();
      if (rows[i].num_logit_rows > 0) begin_turn(*request, masses[i]);
    } else {
      request->attend_stats += request->last_step;
    }
    if (rows[i].num_logit_rows > 0) advance(request, logit_row++);
  }
  std::erase(running_, nullptr);
}

void EngineImpl::advance(RequestPtr& request, size_t logit_row) {
  if (request->max_tokens == 0) {  // only the prompt was to be read
    finish(*request, FinishReason::kLength);
    request.reset();
    return;
  }
  auto step = request->reply->advance(runner_.logits(logit_row));
  if (request->first_token_us == 0) request->first_token_us = now_us();
  ++stats_.completion_tokens;
  if (!step.ok()) {
    fail(*request, step.error());
    request.reset();
    return;
  }
  if (!step->event.text.empty()) request->state->emit(std::move(step->event));
  std::optional<FinishReason> reason;
  if (step->finished) {
    reason = FinishReason::kStop;
  } else {
    if (request->num_tokens() >= request->limit_tokens) extend_promise(*request);
    const bool all_made =
        request->max_tokens >= 0 && request->reply->num_sampled() >= request->max_tokens;
    if (all_made || request->num_tokens() >= request->limit_tokens) reason = FinishReason::kLength;
  }
  if (!reason) return;
  finish(*request, *reason);
  request.reset();
}

void EngineImpl::extend_promise(RunningRequest& request) {
  if (request.limit_tokens >= request.wanted_tokens) return;
  const int32_t wanted = std::min(request.limit_tokens + kPromiseStep, request.wanted_tokens);
  if (promise_with_reclaim(request, wanted).ok()) request.limit_tokens = wanted;
}

void EngineImpl::publish_stats() {
  stats_.running = static_cast<int32_t>(running_.size());
  stats_.sessions = static_cast<int32_t>(sessions_.all().size());
  stats_.kv_cap_bytes = parts_.ledger->cap_bytes();
  stats_.kv_used_bytes = parts_.ledger->used_bytes();
  stats_.kv_peak_bytes = parts_.ledger->peak_bytes();
  const std::lock_guard lock(stats_mutex_);
  published_ = stats_;
}

}  // namespace ikv
