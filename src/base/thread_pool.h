// ThreadPool: the fixed set of threads that kernels run on.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace ikv {

/// A fork-join pool made for steps of a few milliseconds with hundreds of short parallel sections:
/// workers spin briefly between sections, then sleep, so that an idle engine costs no CPU.
/// `num_threads` counts the caller, which takes part in the work. One section runs at a time; calls
/// from several threads are a bug of the caller (the engine has one thread that computes).
class ThreadPool {
 public:
  /// `num_threads` is clamped to 1..256.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  /// Calls task(index, thread) once for each index in [0, num_tasks), spread over the threads by an
  /// atomic counter, and returns when all are done. `thread` is in [0, num_threads). Which thread
  /// takes which index is not fixed, so a task's result must not depend on `thread`.
  template <typename Task>
  void parallel_for(size_t num_tasks, const Task& task) {
    run(num_tasks, &task, [](const void* context, size_t index, int thread) {
      (*static_cast<const Task*>(context))(index, thread);
    });
  }

 private:
  using TaskFunction = void (*)(const void* context, size_t index, int thread);
  void run(size_t num_tasks, const void* context, TaskFunction function);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ikv
