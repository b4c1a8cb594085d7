// Runs work that may take long on a pool, so that the I/O thread stays responsive.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace ikv {

/// Runs `work` on `pool` and resumes on the coroutine's own executor with its result. `work` must
/// not throw. The pool must be joined before the executor's context goes.
template <typename Work>
boost::asio::awaitable<std::invoke_result_t<Work>> offload(boost::asio::thread_pool& pool,
                                                           Work work) {
  using Value = std::invoke_result_t<Work>;
  struct Shared {
    explicit Shared(const boost::asio::any_io_executor& io) : done(io) {}
    std::optional<Value> value;
    boost::asio::steady_timer done;
  };
  const boost::asio::any_io_executor io = co_await boost::asio::this_coro::executor;
  auto shared = std::make_shared<Shared>(io);
  shared->done.expires_at(boost::asio::steady_timer::time_point::max());
  boost::asio::post(pool, [shared, io, work = std::move(work)]() mutable {
    Value value = work();
    boost::asio::post(io, [shared, value = std::move(value)]() mutable {
      shared->value.emplace(std::move(value));
      shared->done.cancel();
    });
  });
  boost::system::error_code ignored;
  while (!shared->value) {
    co_await shared->done.async_wait(
        boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
  }
  co_return *std::move(shared->value);
}

}  // namespace ikv
