#include "kv/kv_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "kv/key_codes.h"
#include "kv/page_digest.h"
#include "kv_pool_model.h"

namespace ikv {
namespace {

using test::test_layout;

/// The shape of SmolLM2-135M with int8 pages, codes and digests.
KvPoolConfig smollm_config() {
  KvPoolConfig config;
  config.layers.assign(30, {3, 64});
  config.cold_formats = {{KvFormat::kInt4, KvFormat::kInt4}};
  config.code_bytes_per_token = key_code_bytes_per_token;
  config.digest_bytes_per_page = page_digest_bytes;
  config.make_layout = test_layout;
  return config;
}

/// Two small layers: blocks of few kilobytes.
KvPoolConfig small_config() {
  KvPoolConfig config = smollm_config();
  config.layers = {{1, 32}, {1, 32}};
  config.block_tokens = 16;
  return config;
}

std::unique_ptr<KvPool> make_pool(KvPoolConfig config, MemoryLedger& ledger) {
  auto pool = KvPool::create(std::move(config), &ledger);
  EXPECT_TRUE(pool.ok()) << (pool.ok() ? "" : pool.error().message);
  return pool.ok() ? std::move(pool).value() : nullptr;
}

std::vector<TokenId> tokens_from(int32_t first, size_t n) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

/// Appends without writing any page.
Status append(KvPool& pool, KvSequenceId id, std::span<const TokenId> tokens) {
  IKV_RETURN_IF_ERROR(pool.reserve(id, static_cast<int32_t>(tokens.size())));
  pool.commit(id, tokens);
  return {};
}

KvSequenceId open_with(KvPool& pool, std::span<const TokenId> tokens, KvShareKey key = {}) {
  auto id = pool.open(key);
  EXPECT_TRUE(id.ok());
  const Status status = append(pool, id.value(), tokens);
  EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
  return id.value();
}

TEST(KvPool, BadConfigurationsAreNamed) {
  MemoryLedger ledger(64 << 20);
  const auto error_of = [&](auto change) {
    KvPoolConfig config = small_config();
    change(config);
    auto pool = KvPool::create(std::move(config), &ledger);
    return pool.ok() ? std::string("accepted") : pool.error().message;
  };
  EXPECT_THAT(error_of([](KvPoolConfig& c) { c.block_tokens = 24; }),
              ::testing::HasSubstr("block size 24"));
  EXPECT_THAT(error_of([](KvPoolConfig& c) { c.block_tokens = 256; }),
              ::testing::HasSubstr("block size 256"));
  EXPECT_THAT(error_of([](KvPoolConfig& c) { c.layers[1].head_dim = 72; }),
              ::testing::HasSubstr("layer 1 has head size 72"));
  EXPECT_THAT(error_of([](KvPoolConfig& c) { c.layers.clear(); }), ::testing::HasSubstr("layers"));
  EXPECT_EQ(ledger.used_bytes(), 0u);
}

TEST(KvPool, CapBelowOneSessionIsRefusedWithTheMinimumThatThenSuffices) {
  MemoryLedger big(256 << 20);
  const size_t minimum = make_pool(smollm_config(), big)->bytes_needed(33);
  MemoryLedger small(minimum - 1);
  auto refused = KvPool::create(smollm_config(), &small);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr(std::to_string(minimum)));
  MemoryLedger exact(minimum);
  auto pool = make_pool(smollm_config(), exact);
  const KvSequenceId id = open_with(*pool, tokens_from(0, 31));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(append(*pool, id, tokens_from(31 + i, 1)).ok());
  EXPECT_EQ(pool->length(id), 33);
}

TEST(KvPool, OverheadStaysWithinItsShareOfAFloat16Cache) {
  for (const KvLayerShape shape : {KvLayerShape{3, 64}, {2, 64}, {8, 128}, {1, 256}}) {
    KvPoolConfig config = smollm_config();
    config.layers.assign(26, shape);
    MemoryLedger ledger(size_t{2} << 30);
    auto pool = make_pool(std::move(config), ledger);
    constexpr size_t kTokens = 8192;
    open_with(*pool, tokens_from(0, kTokens));
    const double f16 = static_cast<double>(kTokens) * 26 * shape.num_kv_heads * shape.head_dim * 4;
    const double codes = static_cast<double>(ledger.used_bytes(MemoryUse::kCodes)) / f16;
    const double rest = static_cast<double>(ledger.used_bytes(MemoryUse::kDigests) +
                                            ledger.used_bytes(MemoryUse::kTables)) /
                        f16;
    const double pages = static_cast<double>(ledger.used_bytes(MemoryUse::kPages)) / f16;
    std::printf(
        "%d KV heads of %d: codes %.2f %%, digests and tables %.2f %%, int8 pages %.2f %%\n",
        shape.num_kv_heads, shape.head_dim, 100 * codes, 100 * rest, 100 * pages);
    EXPECT_LE(codes, 0.04);
    EXPECT_LE(rest, 0.025);
    // int8 rows and two f32 scales a token and head; extents may waste 2 %.
    EXPECT_LE(pages, (0.5 + 2.0 / shape.head_dim) * 1.02);
  }
}

TEST(KvPool, PrefixesAreSharedOnlyUnderTheSamePolicyAndSalt) {
  MemoryLedger ledger(16 << 20);
  auto pool = make_pool(small_config(), ledger);
  const auto text = tokens_from(0, 100);
  const KvSequenceId id = open_with(*pool, text, {1, 1});
  EXPECT_EQ(pool->match(text, {1, 1}), 96);
  EXPECT_EQ(pool->match(text, {2, 1}), 0);
  EXPECT_EQ(pool->match(text, {1, 2}), 0);
  EXPECT_EQ(pool->match(std::span(text).first(95), {1, 1}), 80);
  auto other = pool->open({1, 1});
  EXPECT_EQ(pool->adopt(other.value(), text).value(), 96);
  EXPECT_EQ(pool->block_refcount(pool->blocks(id)[0]), 2u);
  EXPECT_EQ(pool->blocks(id)[5], pool->blocks(other.value())[5]);
  // A different token in the first block: the later, equal blocks are not the same history.
  auto changed = text;
  changed[3] = 77;
  EXPECT_EQ(pool->match(changed, {1, 1}), 0);
  EXPECT_TRUE(pool->check_invariants().ok());
}

TEST(KvPool, EqualBlocksOfTwoSessionsBecomeOne) {
  MemoryLedger ledger(16 << 20);
  auto pool = make_pool(small_config(), ledger);
  const auto text = tokens_from(0, 64);
  const KvSequenceId a = open_with(*pool, text);
  const KvSequenceId b = open_with(*pool, text);
  EXPECT_EQ(pool->stats().num_blocks, 4u);
  EXPECT_EQ(pool->stats().num_deduplicated_blocks, 4u);
  EXPECT_TRUE(std::ranges::equal(pool->blocks(a), pool->blocks(b)));
}

TEST(KvPool, ADroppedPageEndsTheMatchAndAFreshEqualBlockRepairsIt) {
  MemoryLedger ledger(16 << 20);
  auto pool = make_pool(small_config(), ledger);
  const auto text = tokens_from(0, 48);
  const KvSequenceId a = open_with(*pool, text);
  const BlockId second = pool->blocks(a)[1];
  pool->release_page(second, 1, 0, KvPageState::kDropped);
  EXPECT_EQ(pool->page_data(second, 1, 0), nullptr);
  EXPECT_EQ(pool->match(text, {}), 16);
  std::vector<KvPageView> views;
  pool->append_views(a, 1, 0, views);
  EXPECT_EQ(views[1].data, nullptr);
  EXPECT_EQ(views[1].num_tokens, 16);
  EXPECT_TRUE(pool->check_invariants().ok());

  auto b = pool->open({});
  ASSERT_TRUE(pool->reserve(b.value(), 48).ok());
  std::byte* fresh = pool->page_data(pool->step(b.value()).sealed[1], 1, 0);
  std::memset(fresh, 0x5A, 64);
  pool->commit(b.value(), text);
  EXPECT_EQ(pool->match(text, {}), 48);
  EXPECT_EQ(pool->page_state(second, 1, 0), KvPageState::kHot);
  EXPECT_EQ(pool->page_data(second, 1, 0)[0], std::byte{0x5A});
  EXPECT_EQ(pool->blocks(b.value())[1], second);
  EXPECT_TRUE(pool->check_invariants().ok());
}

TEST(KvPool, SpilledPagesFreeTheirSlotAndComeBackByteForByte) {
  MemoryLedger ledger(16 << 20);
  auto pool = make_pool(small_config(), ledger);
  const KvSequenceId id = open_with(*pool, tokens_from(0, 16));
  const BlockId block = pool->blocks(id)[0];
  const size_t page_bytes = pool->page_layout(block, 0, 0).page_bytes;
  std::memset(pool->page_data(block, 0, 0), 0x37, page_bytes);
  const std::vector<std::byte> original(pool->page_data(block, 0, 0),
                                        pool->page_data(block, 0, 0) + page_bytes);
  const size_t before = pool->stats().live_page_bytes;
  pool->release_page(block, 0, 0, KvPageState::kSpilled);
  EXPECT_EQ(pool->stats().live_page_bytes, before - page_bytes);
  EXPECT_EQ(pool->match(tokens_from(0, 16), {}), 16);  // spilled is not lost
  const Status recalled = pool->set_page(block, 0, 0, pool->config().formats, KvPageState::kHot,
                                         [&](const std::byte* old, std::byte* bytes) {
                                           EXPECT_EQ(old, nullptr);
                                           std::memcpy(bytes, original.data(), page_bytes);
                                         });
  ASSERT_TRUE(recalled.ok());
  EXPECT_EQ(std::memcmp(pool->page_data(block, 0, 0), original.data(), page_bytes), 0);
  EXPECT_FALSE(pool->set_page(block, 0, 0, {KvFormat::kF32, KvFormat::kInt4}, KvPageState::kCold,
                              [](const std::byte*, std::byte*) {})
                   .ok());
  EXPECT_TRUE(pool->check_invariants().ok());
}

TEST(KvPool, PinnedPrefixesAreReclaimedLastAndLeastRecentlyUsedFirst) {
  MemoryLedger ledger(16 << 20);
  auto pool = make_pool(small_config(), ledger);
  const auto old_text = tokens_from(0, 32), new_text = tokens_from(1000, 32),
             pinned_text = tokens_from(2000, 32);
  const KvSequenceId p = open_with(*pool, pinned_text);
  const KvPinId pin = pool->pin(p, 32);
  pool->close(p);
  pool->close(open_with(*pool, old_text));
  pool->close(open_with(*pool, new_text));
  const auto reclaim_blocks = [&](size_t n) { EXPECT_EQ(pool->reclaim_blocks(n), n); };
  reclaim_blocks(1);
  EXPECT_EQ(pool->match(old_text, {}), 16);  // its leaf went
  reclaim_blocks(1);
  EXPECT_EQ(pool->match(old_text, {}), 0);
  EXPECT_EQ(pool->match(new_text, {}), 32);
  reclaim_blocks(2);
  EXPECT_EQ(pool->match(new_text, {}), 0);
  EXPECT_EQ(pool->match(pinned_text, {}), 32);
  reclaim_blocks(1);
  EXPECT_EQ(pool->match(pinned_text, {}), 16);
  EXPECT_TRUE(pool->check_invariants().ok());
  pool->unpin(pin);  // half of what it named is gone already
  EXPECT_EQ(pool->stats().num_pinned_idle_blocks, 0u);
  EXPECT_TRUE(pool->check_invariants().ok());
}

TEST(KvPool, APromiseCannotBeEatenByOthersAndRefusalsGiveTheFigures) {
  MemoryLedger ledger(24 << 20);
  auto pool = make_pool(smollm_config(), ledger);
  auto a = pool->open({}), b = pool->open({});
  ASSERT_TRUE(pool->promise(a.value(), 800).ok());
  const Status too_much = pool->promise(b.value(), 4000);
  ASSERT_FALSE(too_much.ok());
  EXPECT_EQ(too_much.error().code, ErrorCode::kOutOfMemory);
  EXPECT_THAT(too_much.error().message, ::testing::HasSubstr(std::to_string(24 << 20)));
  // b takes all it can get.
  int32_t taken = 0;
  while (pool->reserve(b.value(), 16).ok()) {
    pool->commit(b.value(), tokens_from(5000 + taken, 16));
    taken += 16;
  }
  EXPECT_GT(taken, 100);
  for (int32_t n = 0; n < 800; n += 50) {
    ASSERT_TRUE(append(*pool, a.value(), tokens_from(n, 50)).ok()) << n;
  }
  EXPECT_LE(ledger.peak_bytes(), ledger.cap_bytes());
  EXPECT_TRUE(pool->check_invariants().ok());
}

TEST(KvPool, CapCanShrinkToWhatIsLiveAndGrowBack) {
  MemoryLedger ledger(32 << 20);
  auto pool = make_pool(smollm_config(), ledger);
  const KvSequenceId keep = open_with(*pool, tokens_from(0, 320));
  pool->close(open_with(*pool, tokens_from(9000, 640)));
  const size_t before = ledger.used_bytes();
  EXPECT_FALSE(pool->set_cap(1 << 20).ok());
  EXPECT_EQ(pool->match(tokens_from(9000, 640), {}), 640);  // a refusal reclaims nothing
  ASSERT_TRUE(pool->set_cap(8 << 20).ok());
  EXPECT_LE(ledger.used_bytes(), size_t{8} << 20);
  EXPECT_LT(ledger.used_bytes(), before);
  EXPECT_EQ(pool->length(keep), 320);
  EXPECT_FALSE(append(*pool, keep, tokens_from(320, 640)).ok());
  ASSERT_TRUE(pool->set_cap(32 << 20).ok());
  EXPECT_TRUE(append(*pool, keep, tokens_from(320, 640)).ok());
  EXPECT_EQ(pool->set_cap(size_t{1} << 40).error().code, ErrorCode::kInvalidArgument);
}

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(KvPool, ResidentMemoryStaysUnderTheCapOverManySessions) {
  constexpr size_t kCap = 48 << 20;
  MemoryLedger ledger(kCap);
  auto pool = make_pool(smollm_config(), ledger);
  std::mt19937 random(3);
  const size_t before = resident_bytes();
  size_t most = 0;
  std::vector<KvSequenceId> open;
  for (int session = 0; session < 200; ++session) {
    auto id = pool->open({0, static_cast<uint64_t>(session)});
    ASSERT_TRUE(id.ok());
    open.push_back(id.value());
    int left = 1 + static_cast<int>(random() % 700);
    while (left > 0) {
      const int n = std::min(left, 96);
      while (!pool->reserve(open.back(), n).ok()) {
        ASSERT_GT(open.size(), 1u);
        pool->close(open.front());
        open.erase(open.begin());
      }
      const KvStep step = pool->step(open.back());
      const auto touch = [&](BlockId block) {
        for (int l = 0; l < 30; ++l) {
          for (int h = 0; h < 3; ++h) {
            std::memset(pool->page_data(block, l, h), session,
                        pool->page_layout(block, l, h).page_bytes);
          }
        }
      };
      for (const BlockId block : step.sealed) touch(block);
      if (step.next_tail != kNoBlock) touch(step.next_tail);
      pool->commit(open.back(), tokens_from(session * 1000 + left, n));
      left -= n;
      most = std::max(most, resident_bytes());
    }
  }
  const size_t grown = most - before;
  std::printf(
      "cap %zu MiB: resident memory grew by at most %.1f MiB; reclaimed %llu blocks, moved "
      "%llu pages\n",
      kCap >> 20, static_cast<double>(grown) / (1 << 20),
      static_cast<unsigned long long>(pool->stats().num_reclaimed_blocks),
      static_cast<unsigned long long>(pool->stats().num_moved_pages));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(static_cast<double>(grown), 1.1 * kCap);
#endif
  EXPECT_LE(ledger.peak_bytes(), kCap);
  EXPECT_TRUE(pool->check_invariants().ok());
}

TEST(KvPool, StatsMayBeReadWhileTheEngineThreadMutates) {
  MemoryLedger ledger(16 << 20);
  auto pool = make_pool(small_config(), ledger);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      const KvPoolStats stats = pool->stats();
      ASSERT_GE(stats.num_blocks, stats.num_idle_blocks);
    }
  });
  for (int i = 0; i < 2000; ++i) pool->close(open_with(*pool, tokens_from(i % 50, 40)));
  stop = true;
  reader.join();
}

TEST(KvPool, TailsOfFormatsFollowTheSealedFormats) {
  MemoryLedger ledger(64 << 20);
  const auto tail_of = [&](KvFormat k, KvFormat v) {
    KvPoolConfig config = small_config();
    config.formats = {k, v};
    auto pool = make_pool(std::move(config), ledger);
    return pool->tail_layout(0).formats.k;
  };
  EXPECT_EQ(tail_of(KvFormat::kInt8, KvFormat::kInt4), KvFormat::kF16);
  EXPECT_EQ(tail_of(KvFormat::kF32, KvFormat::kF32), KvFormat::kF32);
  EXPECT_EQ(tail_of(KvFormat::kBF16, KvFormat::kBF16), KvFormat::kBF16);
  EXPECT_EQ(tail_of(KvFormat::kBF16, KvFormat::kInt8), KvFormat::kF16);
}

}  // namespace
}  // namespace ikv
