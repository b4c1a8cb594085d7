#include "server/event_queue.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace ikv {
namespace {

constexpr size_t kMaxQueuedEvents = 64;

}  // namespace

void EventQueue::push(size_t choice, const GenerationEvent& event) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  const auto last = events_.size() < kMaxQueuedEvents
                        ? events_.rend()
                        : std::find_if(events_.rbegin(), events_.rend(),
                                       [&](const ChoiceEvent& e) { return e.choice == choice; });
  if (last != events_.rend()) {
    last->event.text += event.text;
    last->event.tokens.insert(last->event.tokens.end(), event.tokens.begin(), event.tokens.end());
    last->event.finished = event.finished;
  } else {
    events_.push_back({choice, event, std::chrono::steady_clock::now()});
  }
  if (std::exchange(wake_posted_, true)) return;
  // Under the lock: close() then knows that the executor is not used after it.
  boost::asio::post(timer_.get_executor(), [self = shared_from_this()] { self->timer_.cancel(); });
}

void EventQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  events_.clear();
}

std::deque<ChoiceEvent> EventQueue::take() {
  const std::lock_guard lock(mutex_);
  wake_posted_ = false;
  return std::exchange(events_, {});
}

boost::asio::awaitable<void> EventQueue::wait(std::chrono::milliseconds at_most) {
  {
    const std::lock_guard lock(mutex_);
    if (!events_.empty()) co_return;
  }
  timer_.expires_after(at_most);
  boost::system::error_code ignored;
  co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
}

}  // namespace ikv
