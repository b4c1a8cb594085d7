// From the engine's thread to a coroutine on the server's I/O thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "intentkv/generation.h"

namespace ikv {

/// An event of one of a request's generations.
struct ChoiceEvent {
  size_t choice = 0;
  GenerationEvent event;
  std::chrono::steady_clock::time_point at;
};

/// Events of one request. push() never blocks; what a slow client does not take is merged, so that
/// memory grows with the reply's text only.
class EventQueue : public std::enable_shared_from_this<EventQueue> {
 public:
  explicit EventQueue(const boost::asio::any_io_executor& io) : timer_(io) {}

  /// From any thread.
  void push(size_t choice, const GenerationEvent& event);
  /// No event is taken after this, and the executor is not used by push() any more.
  void close();

  /// I/O thread: what has come since the last call.
  std::deque<ChoiceEvent> take();
  /// I/O thread: returns when there are events, or after `at_most`.
  boost::asio::awaitable<void> wait(std::chrono::milliseconds at_most);

 private:
  std::mutex mutex_;
  std::deque<ChoiceEvent> events_;
  bool wake_posted_ = false;
  bool closed_ = false;
  boost::asio::steady_timer timer_;
};

}  // namespace ikv
