#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ikv {
namespace {

// A few hundred µs on current machines: longer than the serial gaps inside a decode step, far
// shorter than the gap between requests.
constexpr int kSpinsBeforeSleep = 20000;
// Waits longer than a task mean that its thread lost its CPU to another program, perhaps ours.
constexpr int kSpinsBeforeYield = 2000;

inline void spin_pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

constexpr size_t kCacheLine = 64;
constexpr uint64_t kTasksMask = 0xFFFFFFFFu;

}  // namespace

// A section ends when its tasks are done, not when every worker has looked at it: on a busy machine
// a worker that has lost its CPU then holds up nobody, the others take its tasks.
struct ThreadPool::Impl {
  // The section's number in the upper half, in the lower how many of its tasks nobody has taken.
  // Taking one checks both at once, so that a late worker never mistakes a section for another.
  alignas(kCacheLine) std::atomic<uint64_t> ticket{0};
  // Tasks of the section that are not done.
  alignas(kCacheLine) std::atomic<size_t> num_pending{0};
  // Written before the ticket, and only while nothing is pending.
  alignas(kCacheLine) size_t num_tasks = 0;
  const void* context = nullptr;
  TaskFunction function = nullptr;

  alignas(kCacheLine) std::atomic<int> num_sleeping{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<std::thread> workers;

  // Takes a task of the section at hand; its fields then stay until the task is done.
  bool take(size_t& index) {
    uint64_t seen = ticket.load(std::memory_order_acquire);
    while ((seen & kTasksMask) != 0) {
      if (ticket.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
        index = num_tasks - static_cast<size_t>(seen & kTasksMask);
        return true;
      }
    }
    return false;
  }

  void work(int thread) {
    size_t index = 0;
    while (take(index)) {
      function(context, index, thread);
      num_pending.fetch_sub(1, std::memory_order_release);
    }
  }

  bool has_work() const { return (ticket.load(std::memory_order_acquire) & kTasksMask) != 0; }

  void wait_for_work() {
    for (int spin = 0; spin < kSpinsBeforeSleep; ++spin) {
      if (has_work() || stop.load(std::memory_order_relaxed)) return;
      spin_pause();
    }
    std::unique_lock lock(mutex);
    num_sleeping.fetch_add(1);  // seq_cst: ordered before the read of ticket
    wake.wait(lock, [&] { return (ticket.load() & kTasksMask) != 0 || stop.load(); });
    num_sleeping.fetch_sub(1);
  }

  void worker_main(int thread) {
    while (!stop.load()) {
      wait_for_work();
      work(thread);
    }
  }

  void wait_until_done() const {
    for (int spin = 0; num_pending.load(std::memory_order_acquire) != 0; ++spin) {
      if (spin < kSpinsBeforeYield) {
        spin_pause();
      } else {
        std::this_thread::yield();
      }
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : impl_(std::make_unique<Impl>()) {
  const int count = std::clamp(num_threads, 1, 256);
  for (int t = 1; t < count; ++t) {
    impl_->workers.emplace_back([this, t] { impl_->worker_main(t); });
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->stop.store(true);
  }
  impl_->wake.notify_all();
  for (auto& worker : impl_->workers) worker.join();
}

int ThreadPool::num_threads() const {
  return static_cast<int>(impl_->workers.size()) + 1;
}

void ThreadPool::run(size_t num_tasks, const void* context, TaskFunction function) {
  Impl& impl = *impl_;
  if (num_tasks <= 1 || impl.workers.empty()) {
    for (size_t i = 0; i < num_tasks; ++i) function(context, i, 0);
    return;
  }
  IKV_CHECK(num_tasks <= kTasksMask);
  impl.num_tasks = num_tasks;
  impl.context = context;
  impl.function = function;
  impl.num_pending.store(num_tasks, std::memory_order_relaxed);
  const uint64_t section = (impl.ticket.load(std::memory_order_relaxed) >> 32) + 1;
  impl.ticket.store(section << 32 | num_tasks);  // seq_cst: before the read of num_sleeping
  if (impl.num_sleeping.load() > 0) {
    std::lock_guard lock(impl.mutex);  // a worker between its check and its wait must not miss this
    impl.wake.notify_all();
  }
  impl.work(0);
  impl.wait_until_done();
}

}  // namespace ikv
