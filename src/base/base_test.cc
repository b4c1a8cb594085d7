#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/mapped_file.h"
#include "base/memory_ledger.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace ikv {
namespace {

Result<int> parse_positive(int x) {
  if (x < 0) return invalid_argument("negative");
  return x;
}
Result<int> twice(int x) {
  IKV_ASSIGN_OR_RETURN(const int value, parse_positive(x));
  return 2 * value;
}

TEST(Result, PropagatesValueAndError) {
  EXPECT_EQ(twice(4).value(), 8);
  ASSERT_FALSE(twice(-1).ok());
  EXPECT_EQ(twice(-1).error().code, ErrorCode::kInvalidArgument);
}

TEST(ThreadPool, RunsEveryTaskExactlyOnceOverManySections) {
  ThreadPool pool(4);
  for (int section = 0; section < 2000; ++section) {
    const size_t num_tasks = static_cast<size_t>(section % 17);
    std::vector<std::atomic<int>> hits(num_tasks);
    pool.parallel_for(num_tasks, [&](size_t i, int thread) {
      ASSERT_GE(thread, 0);
      ASSERT_LT(thread, 4);
      hits[i].fetch_add(1);
    });
    for (auto& hit : hits) ASSERT_EQ(hit.load(), 1);
  }
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> count{0};
    pool.parallel_for(100, [&](size_t, int) { count.fetch_add(1); });
    EXPECT_EQ(count.load(), 100);
  }
}

TEST(MemoryLedger, RefusesOverCapAndReturnsBytesOnRelease) {
  MemoryLedger ledger(1000);
  auto first = ledger.charge(MemoryUse::kPages, 600);
  ASSERT_TRUE(first.ok());
  auto second = ledger.charge(MemoryUse::kCodes, 500);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, ErrorCode::kOutOfMemory);
  EXPECT_NE(second.error().message.find("400 free"), std::string::npos);
  EXPECT_FALSE(ledger.set_cap(599).ok());
  first->reset();
  EXPECT_EQ(ledger.used_bytes(), 0u);
  EXPECT_EQ(ledger.peak_bytes(), 600u);
  EXPECT_TRUE(ledger.set_cap(10).ok());
}

TEST(AlignedBuffer, IsAlignedZeroedAndWritableAtSmallAndHugeSizes) {
  for (const size_t size : {size_t{1}, size_t{100}, size_t{5} << 20}) {
    auto buffer = AlignedBuffer::allocate(size);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_EQ(buffer->data()[size - 1], std::byte{0});
    buffer->data()[size - 1] = std::byte{7};
  }
  EXPECT_FALSE(AlignedBuffer::allocate(SIZE_MAX).ok());
}

TEST(MappedFile, NamesTheProblem) {
  EXPECT_EQ(MappedFile::open("/nonexistent/file").error().code, ErrorCode::kNotFound);
  EXPECT_NE(MappedFile::open("/").error().message.find("directory"), std::string::npos);
  EXPECT_NE(MappedFile::open("/dev/null").error().message.find("regular"), std::string::npos);
}

}  // namespace
}  // namespace ikv
