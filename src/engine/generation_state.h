// The engine's side of a Generation: events go in on the engine's thread, come out on the client's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "intentkv/generation.h"

namespace ikv {

/// Shared by the engine and every handle. Thread-safe.
class GenerationState {
 public:
  explicit GenerationState(EventCallback on_event) : on_event_(std::move(on_event)) {}

  // --- engine's thread ---
  void emit(GenerationEvent event);
  void finish(GenerationResult result);
  void fail(Error error);
  bool cancel_requested() const { return cancel_requested_.load(std::memory_order_relaxed); }

  // --- clients' threads ---
  Result<GenerationEvent> next();
  Result<GenerationResult> wait();
  void request_cancel() { cancel_requested_.store(true, std::memory_order_relaxed); }
  bool finished() const;

 private:
  bool done() const { return result_.has_value() || error_.has_value(); }

  const EventCallback on_event_;
  std::atomic<bool> cancel_requested_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<GenerationEvent> events_;  // only without a callback
  std::optional<GenerationResult> result_;
  std::optional<Error> error_;
};

/// What a client holds; the last one to go cancels the work.
class GenerationHandle : public Generation {
 public:
  /// `on_cancel` wakes the engine, so that a waiting generation ends at once.
  GenerationHandle(std::shared_ptr<GenerationState> state, std::function<void()> on_cancel)
      : state_(std::move(state)), on_cancel_(std::move(on_cancel)) {}
  ~GenerationHandle() override {
    if (!state_->finished()) cancel();
  }
  Result<GenerationEvent> next() override { return state_->next(); }
  Result<GenerationResult> wait() override { return state_->wait(); }
  void cancel() override {
    state_->request_cancel();
    on_cancel_();
  }
  bool finished() const override { return state_->finished(); }

 private:
  std::shared_ptr<GenerationState> state_;
  std::function<void()> on_cancel_;
};

}  // namespace ikv
