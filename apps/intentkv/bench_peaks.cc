// Micro-benchmarks of the machine itself: how fast can memory be read, how fast can 8-bit products
// be summed? They need no precision beyond a few per cent, only the same threads as the engine.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "bench_machine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ikv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBytesPerThread = size_t{256} << 20;  // beyond a last-level cache's share
constexpr int kRuns = 5;
constexpr int64_t kProductRounds = 5'000'000;

// Keeps the compiler from dropping the work that led to `value`.
void consume(int64_t value) {
  static std::atomic<int64_t> sink;
  sink.fetch_add(value, std::memory_order_relaxed);
}

// Runs `work(thread)` on all threads at once; seconds from the common start to the last end.
double time_threads(int num_threads, const std::function<void(int)>& work) {
  std::atomic<int> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(num_threads));
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&, i] {
      ++ready;
      while (!go) std::this_thread::yield();
      work(i);
    });
  }
  while (ready < num_threads) std::this_thread::yield();
  const Clock::time_point start = Clock::now();
  go = true;
  for (std::thread& thread : threads) thread.join();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int64_t sum_words(const int64_t* words, size_t count) {
  int64_t sums[8] = {};  // independent, so that loads and not additions are the limit
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

double measure_bandwidth(int num_threads) {
  const size_t words = kBytesPerThread / sizeof(int64_t);
  std::vector<std::unique_ptr<int64_t[]>> buffers(static_cast<size_t>(num_threads));
  // Each thread touches its own part first, so that the pages lie near it.
  time_threads(num_threads, [&](int i) {
    buffers[static_cast<size_t>(i)] = std::make_unique<int64_t[]>(words);
    std::iota(buffers[static_cast<size_t>(i)].get(), buffers[static_cast<size_t>(i)].get() + words,
              i);
  });
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const double seconds = time_threads(num_threads, [&](int i) {
      consume(sum_words(buffers[static_cast<size_t>(i)].get(), words));
    });
    best = std::max(best, static_cast<double>(kBytesPerThread) * num_threads / seconds);
  }
  return best;
}

// Operations (a multiply-add is two) that one call of a products function does.
struct ProductsKernel {
  int64_t (*run)(int64_t rounds) = nullptr;
  double operations_per_round = 0;
};

#if defined(__x86_64__)

__attribute__((target("avx512f,avx512bw,avx512vnni"))) int64_t products_vnni(int64_t rounds) {
  __m512i sums[12];
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(3);
  const __m512i b = _mm512_set1_epi8(1);
  for (int64_t i = 0; i < rounds; ++i) {
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
    asm volatile("" : "+v"(a));  // the products must be done anew each round
  }
  int64_t total = 0;
  for (const __m512i& sum : sums) {
    alignas(64) int32_t lanes[16];
    _mm512_store_si512(lanes, sum);
    total += lanes[0];
  }
  return total;
}

__attribute__((target("avx2"))) int64_t products_avx2(int64_t rounds) {
  __m256i sums[8];
  for (__m256i& sum : sums) sum = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(1);
  const __m256i ones = _mm256_set1_epi16(1);
  for (int64_t i = 0; i < rounds; ++i) {
    for (__m256i& sum : sums) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
      asm volatile("" : "+x"(a));
    }
  }
  int64_t total = 0;
  for (const __m256i& sum : sums) total += _mm_cvtsi128_si32(_mm256_castsi256_si128(sum));
  return total;
}

ProductsKernel best_kernel() {
  if (__builtin_cpu_supports("avx512vnni")) return {products_vnni, 12 * 64 * 2};
  if (__builtin_cpu_supports("avx2")) return {products_avx2, 8 * 32 * 2};
  return {};
}

#else

ProductsKernel best_kernel() {
  return {};
}

#endif

double measure_arithmetic(int num_threads) {
  const ProductsKernel kernel = best_kernel();
  if (kernel.run == nullptr) return 0;  // unknown: the report shows no fraction
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const double seconds =
        time_threads(num_threads, [&](int) { consume(kernel.run(kProductRounds)); });
    best = std::max(best, kernel.operations_per_round * static_cast<double>(kProductRounds) *
                              num_threads / seconds);
  }
  return best;
}

}  // namespace

MachineSpeed measure_machine(int num_threads) {
  return {measure_bandwidth(num_threads), measure_arithmetic(num_threads)};
}

}  // namespace ikv
