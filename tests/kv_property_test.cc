// Random operations on a KvPool against a naive model, with every invariant checked after each.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "kv_pool_fuzzer.h"

namespace ikv::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kDefaultOperations = 60'000;
#else
constexpr int kDefaultOperations = 240'000;
#endif

int num_operations() {
  const char* text = std::getenv("IKV_PROPERTY_OPERATIONS");
  return text == nullptr ? kDefaultOperations : std::max(1, std::atoi(text));
}

class KvPropertyTest : public ::testing::TestWithParam<int> {};

TEST_P(KvPropertyTest, PoolEqualsNaiveModelUnderRandomOperations) {
  // The caps range from hardly one sequence to enough for all.
  const size_t cap = size_t{640 << 10} + static_cast<size_t>(GetParam()) * (110 << 10);
  Fuzzer fuzzer(static_cast<uint64_t>(GetParam()) + 1, cap);
  fuzzer.run(num_operations() / 6);
  // The run must have been through what it claims to test.
  if (num_operations() >= 6000) {
    EXPECT_GT(fuzzer.num_appends, 100u);
    EXPECT_GT(fuzzer.num_matched, 100u);
    EXPECT_GT(fuzzer.num_cold, 10u);
    EXPECT_GT(fuzzer.last_stats.num_deduplicated_blocks, 10u);
    EXPECT_GT(fuzzer.last_stats.num_reclaimed_blocks, 10u);
    EXPECT_GT(fuzzer.last_stats.num_moved_pages, 10u);
  }
  std::printf(
      "cap %zu: %llu appends, %llu refusals, %llu matched tokens, %llu deduplicated, "
      "%llu reclaimed, %llu moved, %llu conversions\n",
      cap, static_cast<unsigned long long>(fuzzer.num_appends),
      static_cast<unsigned long long>(fuzzer.num_refused),
      static_cast<unsigned long long>(fuzzer.num_matched),
      static_cast<unsigned long long>(fuzzer.last_stats.num_deduplicated_blocks),
      static_cast<unsigned long long>(fuzzer.last_stats.num_reclaimed_blocks),
      static_cast<unsigned long long>(fuzzer.last_stats.num_moved_pages),
      static_cast<unsigned long long>(fuzzer.num_cold));
}

INSTANTIATE_TEST_SUITE_P(Caps, KvPropertyTest, ::testing::Range(0, 6));

}  // namespace
}  // namespace ikv::test
