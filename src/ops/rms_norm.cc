#include "ops/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "base/cpu_isa.h"
#include "ops/target_pragmas.h"

namespace ikv {
namespace {

constexpr size_t kPartialSums = 16;
// Elements of a task: about 10 µs of work.
constexpr size_t kTaskElements = 32768;

// Compiled once for each instruction set, by inlining; the order of the sums is the source's.
inline __attribute__((always_inline)) void norm_row(const float* x, const float* weight,
                                                    size_t width, float epsilon, float* out) {
  float sums[kPartialSums] = {};
  const size_t whole = width / kPartialSums * kPartialSums;
  for (size_t i = 0; i < whole; i += kPartialSums) {
    for (size_t j = 0; j < kPartialSums; ++j) sums[j] += x[i + j] * x[i + j];
  }
  for (size_t i = whole; i < width; ++i) sums[i - whole] += x[i] * x[i];
  for (size_t step = kPartialSums / 2; step > 0; step /= 2) {
    for (size_t j = 0; j < step; ++j) sums[j] += sums[j + step];
  }
  const float mean = sums[0] / static_cast<float>(width);
  const float scale = 1.0f / __builtin_sqrtf(mean + epsilon);
  for (size_t i = 0; i < width; ++i) out[i] = x[i] * scale * weight[i];
}

void norm_row_scalar(const float* x, const float* weight, size_t width, float epsilon, float* out) {
  norm_row(x, weight, width, epsilon, out);
}

#if defined(__x86_64__)
IKV_TARGET_BEGIN("avx2")
void norm_row_avx2(const float* x, const float* weight, size_t width, float epsilon, float* out) {
  norm_row(x, weight, width, epsilon, out);
}
IKV_TARGET_END
#if defined(__clang__)
IKV_TARGET_BEGIN("avx512f")
#else
IKV_TARGET_BEGIN("avx512f,prefer-vector-width=512")
#endif
void norm_row_avx512(const float* x, const float* weight, size_t width, float epsilon, float* out) {
  norm_row(x, weight, width, epsilon, out);
}
IKV_TARGET_END
#endif

using NormRow = void (*)(const float*, const float*, size_t, float, float*);

NormRow best_norm_row() {
#if defined(__x86_64__)
  if (cpu_isa() >= CpuIsa::kAvx512Vnni) return norm_row_avx512;
  if (cpu_isa() >= CpuIsa::kAvx2) return norm_row_avx2;
#endif
  return norm_row_scalar;
}

}  // namespace

void rms_norm(const float* x, const float* weight, size_t num_rows, size_t width, float epsilon,
              float* out, ThreadPool& threads) {
  if (width == 0) return;
  const NormRow row_function = best_norm_row();
  const size_t rows_a_task = std::max<size_t>(1, kTaskElements / width);
  const size_t num_tasks = (num_rows + rows_a_task - 1) / rows_a_task;
  threads.parallel_for(num_tasks, [&](size_t task, int) {
    const size_t end = std::min(num_rows, (task + 1) * rows_a_task);
    for (size_t row = task * rows_a_task; row < end; ++row) {
      row_function(x + row * width, weight, width, epsilon, out + row * width);
    }
  });
}

}  // namespace ikv
