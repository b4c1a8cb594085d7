#include "engine/generation_state.h"

namespace ikv {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kToolCalls:
      return "tool_calls";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "?";
}

void GenerationState::emit(GenerationEvent event) {
  if (on_event_) {
    on_event_(event);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    // A client that does not read: its text is merged instead of queued, so memory grows only with
    // the reply itself.
    if (events_.size() >= 64 && !events_.back().finished) {
      events_.back().text += event.text;
      for (auto& token : event.tokens) events_.back().tokens.push_back(std::move(token));
      events_.back().finished = event.finished;
    } else {
      events_.push_back(std::move(event));
    }
  }
  changed_.notify_all();
}

void GenerationState::finish(GenerationResult result) {
  {
    std::lock_guard lock(mutex_);
    if (done()) return;
    result_ = std::move(result);
  }
  changed_.notify_all();
  GenerationEvent last;
  last.finished = true;
  emit(std::move(last));
}

void GenerationState::fail(Error error) {
  {
    std::lock_guard lock(mutex_);
    if (done()) return;
    error_ = std::move(error);
  }
  changed_.notify_all();
  if (on_event_) {
    GenerationEvent last;
    last.finished = true;
    on_event_(last);
  }
}

Result<GenerationEvent> GenerationState::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !events_.empty() || error_.has_value(); });
  if (events_.empty()) return *error_;
  GenerationEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

Result<GenerationResult> GenerationState::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done(); });
  if (error_) return *error_;
  return *result_;
}

bool GenerationState::finished() const {
  std::lock_guard lock(mutex_);
  return done();
}

}  // namespace ikv
