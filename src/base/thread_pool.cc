#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ikv {
namespace {

// About 50 µs on current machines: longer than the serial gaps inside a decode step, far shorter
// than the gap between requests.
constexpr int kSpinsBeforeSleep = 20000;

inline void spin_pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

struct ThreadPool::Impl {
  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;

  // Section state. `generation` is bumped (release) after the other fields are set.
  std::atomic<uint64_t> generation{0};
  std::atomic<size_t> next_index{0};
  std::atomic<int> num_active{0};
  std::atomic<int> num_sleeping{0};
  size_t num_tasks = 0;
  const void* context = nullptr;
  TaskFunction function = nullptr;
  std::atomic<bool> stop{false};

  void work(int thread) {
    for (size_t i = next_index.fetch_add(1, std::memory_order_relaxed); i < num_tasks;
         i = next_index.fetch_add(1, std::memory_order_relaxed)) {
      function(context, i, thread);
    }
  }

  void wait_for_new_generation(uint64_t seen) {
    for (int spin = 0; spin < kSpinsBeforeSleep; ++spin) {
      if (generation.load(std::memory_order_acquire) != seen || stop.load()) return;
      spin_pause();
    }
    std::unique_lock lock(mutex);
    num_sleeping.fetch_add(1);
    wake.wait(lock, [&] { return generation.load() != seen || stop.load(); });
    num_sleeping.fetch_sub(1);
  }

  void worker_main(int thread) {
    uint64_t seen = 0;
    while (true) {
      wait_for_new_generation(seen);
      if (stop.load()) return;
      seen = generation.load(std::memory_order_acquire);
      work(thread);
      num_active.fetch_sub(1, std::memory_order_release);
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
  impl.num_tasks = num_tasks;
  impl.context = context;
  impl.function = function;
  impl.next_index.store(0, std::memory_order_relaxed);
  impl.num_active.store(static_cast<int>(impl.workers.size()), std::memory_order_relaxed);
  impl.generation.fetch_add(1);  // seq_cst: ordered before the read of num_sleeping
  if (impl.num_sleeping.load() > 0) {
    std::lock_guard lock(impl.mutex);  // a worker between its check and its wait must not miss this
    impl.wake.notify_all();
  }
  impl.work(0);
  // Every worker must have left the section before its fields may change; all are busy or spinning.
  while (impl.num_active.load(std::memory_order_acquire) != 0) spin_pause();
}

}  // namespace ikv
