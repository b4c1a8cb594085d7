// Random operations on a KvPool beside a naive model: the body of the KV property test.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kv_pool_model.h"

namespace ikv::test {

inline constexpr int kBlock = 16;
// Small alphabets and few seeds make prefixes coincide often; lengths stay near a few blocks.
inline constexpr int kMaxTokens = 9 * kBlock;
inline constexpr size_t kMaxSequences = 10;

inline size_t test_code_bytes(int) {
  return 8;
}
inline size_t test_digest_bytes(int head_dim) {
  return static_cast<size_t>(head_dim) * 2 + 8;
}

/// One pool, the model, and the operations between them.
class Fuzzer {
 public:
  Fuzzer(uint64_t seed, size_t cap_bytes) : random_(seed), ledger_(cap_bytes), cap_(cap_bytes) {
    KvPoolConfig config;
    config.layers = {{2, 32}, {1, 64}};
    config.cold_formats = {{KvFormat::kInt4, KvFormat::kInt4}};
    config.block_tokens = kBlock;
    config.code_bytes_per_token = test_code_bytes;
    config.digest_bytes_per_page = test_digest_bytes;
    config.make_layout = test_layout;
    auto pool = KvPool::create(std::move(config), &ledger_);
    EXPECT_TRUE(pool.ok()) << (pool.ok() ? "" : pool.error().message);
    if (pool.ok()) pool_ = std::move(pool).value();
  }

  void run(int operations) {
    ASSERT_NE(pool_, nullptr);
    for (int i = 0; i < operations && !::testing::Test::HasFailure(); ++i) {
      const char* name = step();
      const Status status = pool_->check_invariants();
      ASSERT_TRUE(status.ok()) << "after operation " << i << " (" << name
                               << "): " << status.error().message;
      check_one_sequence();
    }
    finish();
  }

  uint64_t num_refused = 0, num_matched = 0, num_appends = 0, num_cold = 0;
  KvPoolStats last_stats;

 private:
  uint32_t below(size_t n) { return static_cast<uint32_t>(random_() % n); }
  bool chance(int percent) { return below(100) < static_cast<uint32_t>(percent); }

  /// Texts come from a few streams, with now and then a token changed.
  TokenId next_token(size_t stream, size_t position) {
    if (chance(1)) return static_cast<TokenId>(100 + below(3));
    return static_cast<TokenId>((stream * 31 + position * 7) % 23);
  }

  KvSequenceId pick() {
    auto it = model_.begin();
    std::advance(it, below(model_.size()));
    return it->first;
  }

  const char* step() {
    const uint32_t op = below(100);
    if (model_.empty() || (op < 8 && model_.size() < kMaxSequences)) return open();
    const KvSequenceId id = pick();
    ModelSequence& s = model_[id];
    if (s.has_step) return op < 80 ? commit(id, s) : op < 96 ? abandon(id, s) : close(id);
    if (op < 50) return append(id, s);
    if (op < 60) return truncate(id, s);
    if (op < 66) return fork(id, s);
    if (op < 71) return close(id);
    if (op < 78) return pin(id, s);
    if (op < 81) return reclaim();
    if (op < 84) return change_cap();
    if (op < 88) return promise(id, s);
    if (op < 96) return convert(id, s);
    return match();
  }

  const char* open() {
    const KvShareKey key{below(2), below(2)};
    auto id = pool_->open(key);
    if (!id.ok()) return refused(id.error());
    ModelSequence s;
    s.key = key;
    if (chance(70)) {
      const auto tokens = stream_tokens(below(3), below(kMaxTokens));
      const int32_t expected = pool_->match(tokens, key);
      auto adopted = pool_->adopt(id.value(), tokens);
      EXPECT_TRUE(adopted.ok());
      if (adopted.ok()) {
        EXPECT_LE(adopted.value(), expected);
        EXPECT_EQ(adopted.value() % kBlock, 0);
        s.tokens.assign(tokens.begin(), tokens.begin() + adopted.value());
        num_matched += static_cast<uint64_t>(adopted.value());
      }
    }
    EXPECT_FALSE(model_.contains(id.value()));
    model_[id.value()] = s;
    verify(id.value());
    return "open";
  }

  std::vector<TokenId> stream_tokens(size_t stream, size_t n) {
    std::vector<TokenId> tokens;
    for (size_t p = 0; p < n; ++p)
      tokens.push_back(static_cast<TokenId>((stream * 31 + p * 7) % 23));
    return tokens;
  }

  const char* refused(const Error& error) {
    EXPECT_EQ(error.code, ErrorCode::kOutOfMemory) << error.message;
    ++num_refused;
    return "refused";
  }

  const char* append(KvSequenceId id, ModelSequence& s) {
    const size_t room = kMaxTokens - std::min<size_t>(kMaxTokens, s.tokens.size());
    if (room == 0) return truncate(id, s);
    const size_t n = 1 + below(chance(50) ? std::min<size_t>(room, 3) : room);
    const bool within = static_cast<int32_t>(s.tokens.size() + n) <= s.promised_tokens;
    const Status status = pool_->reserve(id, static_cast<int32_t>(n));
    if (!status.ok()) {
      EXPECT_FALSE(within) << "a promise was broken: " << status.error().message;
      EXPECT_FALSE(pool_->has_step(id));
      verify(id);
      return refused(status.error());
    }
    ++num_appends;
    const size_t stream = below(3);
    for (size_t i = 0; i < n; ++i) s.pending.push_back(next_token(stream, s.tokens.size() + i));
    s.has_step = true;
    if (chance(80)) return commit(id, s);
    return "reserve";
  }

  void write_rows(KvSequenceId id, const ModelSequence& s) {
    const KvStep step = pool_->step(id);
    const std::vector<uint64_t> chain = chain_of(s);
    const int32_t first_block = step.old_length / kBlock;
    ASSERT_EQ(step.old_length, static_cast<int32_t>(s.tokens.size()));
    ASSERT_EQ(step.new_length, static_cast<int32_t>(chain.size()));
    // Sealed pages hold all rows of their block, the tail's earlier ones included.
    for (size_t i = 0; i < step.sealed.size(); ++i) {
      for (int row = 0; row < kBlock; ++row) {
        const size_t position = (static_cast<size_t>(first_block) + i) * kBlock + row;
        write_row_of(step.sealed[i], chain[position], row,
                     position >= static_cast<size_t>(step.old_length));
      }
    }
    for (int32_t p = step.old_length; p < step.new_length; ++p) {
      const bool in_tail = step.tail != kNoBlock && p / kBlock == first_block;
      const bool in_next = step.next_tail != kNoBlock && p / kBlock == step.new_length / kBlock;
      const bool coded = in_next;
      if (in_tail) write_row_of(step.tail, chain[p], p % kBlock, coded);
      if (in_next) write_row_of(step.next_tail, chain[p], p % kBlock, coded);
    }
  }

  void write_row_of(BlockId block, uint64_t chain, int row, bool code) {
    for (int l = 0; l < pool_->num_layers(); ++l) {
      for (int h = 0; h < pool_->num_kv_heads(l); ++h) {
        write_row(pool_->page_data(block, l, h), pool_->page_layout(block, l, h), row,
                  row_pattern(chain, l, h, 0), row_pattern(chain, l, h, 1));
        if (!code) continue;
        const uint64_t pattern = row_pattern(chain, l, h, 2);
        std::memcpy(pool_->page_codes(block, l, h) + row * 8, &pattern, 8);
      }
    }
  }

  const char* commit(KvSequenceId id, ModelSequence& s) {
    write_rows(id, s);
    size_t n = s.pending.size();
    if (chance(15)) n = below(n + 1);
    // What must come out, computed without the pool: rows of a cut block survive in a tail only.
    const size_t old_length = s.tokens.size(), full = old_length + s.pending.size();
    size_t expected = old_length + n;
    const bool old_tail = old_length % kBlock != 0 && expected / kBlock == old_length / kBlock;
    const bool next_tail = full % kBlock != 0 && expected / kBlock == full / kBlock;
    if (!old_tail && !next_tail) expected -= expected % kBlock;
    const int32_t length = pool_->commit(id, std::span(s.pending).first(n));
    EXPECT_EQ(static_cast<size_t>(length), expected);
    s.tokens.insert(s.tokens.end(), s.pending.begin(),
                    s.pending.begin() + static_cast<ptrdiff_t>(expected - old_length));
    s.pending.clear();
    s.has_step = false;
    verify(id);
    return "commit";
  }

  const char* abandon(KvSequenceId id, ModelSequence& s) {
    if (chance(50)) write_rows(id, s);  // cancelled in the middle of the model
    pool_->abandon(id);
    s.pending.clear();
    s.has_step = false;
    verify(id);
    return "abandon";
  }

  const char* truncate(KvSequenceId id, ModelSequence& s) {
    const size_t to = below(s.tokens.size() + 1);
    const size_t border = s.tokens.size() / kBlock * kBlock;
    const size_t expected = to >= border ? to : to / kBlock * kBlock;
    EXPECT_EQ(static_cast<size_t>(pool_->truncate(id, static_cast<int32_t>(to))), expected);
    s.tokens.resize(expected);
    s.promised_tokens = 0;  // may have been given up; promise again when wanted
    const Status status = pool_->promise(id, 0);
    EXPECT_TRUE(status.ok());
    verify(id);
    return "truncate";
  }

  const char* fork(KvSequenceId id, const ModelSequence& from) {
    if (model_.size() >= kMaxSequences) return "no fork";
    const size_t n = below(from.tokens.size() + 1);
    auto forked = pool_->fork(id, static_cast<int32_t>(n));
    if (!forked.ok()) return refused(forked.error());
    const size_t border = from.tokens.size() / kBlock * kBlock;
    ModelSequence s;
    s.key = from.key;
    s.tokens = from.tokens;
    s.tokens.resize(n >= border ? n : n / kBlock * kBlock);
    model_[forked.value()] = s;
    verify(forked.value());
    return "fork";
  }

  const char* close(KvSequenceId id) {
    pool_->close(id);
    model_.erase(id);
    return "close";
  }

  const char* pin(KvSequenceId id, const ModelSequence& s) {
    if (pins_.size() < 4 && chance(60)) {
      pins_.push_back(pool_->pin(id, static_cast<int32_t>(below(s.tokens.size() + 1))));
      return "pin";
    }
    if (pins_.empty()) return "no pin";
    const size_t i = below(pins_.size());
    pool_->unpin(pins_[i]);
    pins_.erase(pins_.begin() + static_cast<ptrdiff_t>(i));
    return "unpin";
  }

  const char* reclaim() {
    const KvPoolStats before = pool_->stats();
    const size_t bytes = pool_->reclaim(below(chance(20) ? 400'000 : 40'000));
    EXPECT_EQ(pool_->stats().charged_bytes, before.charged_bytes - bytes);
    return "reclaim";
  }

  const char* change_cap() {
    const size_t cap = cap_ / 4 + below(cap_ * 3 / 4 + 1);
    const Status status = pool_->set_cap(cap);
    if (!status.ok()) return refused(status.error());
    EXPECT_EQ(ledger_.cap_bytes(), cap);
    EXPECT_LE(ledger_.used_bytes(), cap);
    return "cap";
  }

  const char* promise(KvSequenceId id, ModelSequence& s) {
    const int32_t n = chance(20) ? 0 : static_cast<int32_t>(below(kMaxTokens));
    const Status status = pool_->promise(id, n);
    if (!status.ok()) return refused(status.error());
    s.promised_tokens = n;
    return "promise";
  }

  /// Demotes or recalls a page; the rows' patterns survive a change of format in this test.
  const char* convert(KvSequenceId id, const ModelSequence& s) {
    const size_t num_sealed = s.tokens.size() / kBlock;
    if (num_sealed == 0) return "nothing to convert";
    const BlockId block = pool_->blocks(id)[below(num_sealed)];
    const int layer = static_cast<int>(below(2));
    const int head = static_cast<int>(below(pool_->num_kv_heads(layer)));
    const bool cold = pool_->page_state(block, layer, head) == KvPageState::kHot;
    const KvFormats formats =
        cold ? KvFormats{KvFormat::kInt4, KvFormat::kInt4} : pool_->config().formats;
    const KvPageLayout from = pool_->page_layout(block, layer, head);
    const KvPageLayout to = *pool_->layout(layer, formats);
    const Status status =
        pool_->set_page(block, layer, head, formats, cold ? KvPageState::kCold : KvPageState::kHot,
                        [&](const std::byte* old, std::byte* fresh) {
                          for (int row = 0; row < kBlock; ++row) {
                            uint64_t k = 0, v = 0;
                            std::memcpy(&k, old + from.k_offset + row * row_bytes(from, true), 8);
                            std::memcpy(&v, old + from.v_offset + row * row_bytes(from, false), 8);
                            write_row(fresh, to, row, k, v);
                          }
                        });
    if (!status.ok()) return refused(status.error());
    ++num_cold;
    return "convert";
  }

  const char* match() {
    const KvShareKey key{below(2), below(2)};
    const auto tokens = stream_tokens(below(3), below(kMaxTokens));
    // Open sequences of the same key give a lower bound that the model knows.
    size_t least = 0;
    for (const auto& [id, s] : model_) {
      if (!(s.key == key)) continue;
      size_t same = 0;
      while (same < s.tokens.size() && same < tokens.size() && s.tokens[same] == tokens[same])
        ++same;
      least = std::max(least, same / kBlock * kBlock);
    }
    EXPECT_GE(static_cast<size_t>(pool_->match(tokens, key)), least);
    // A key that no sequence ever had finds nothing.
    EXPECT_EQ(pool_->match(tokens, {7, 0}), 0);
    EXPECT_EQ(pool_->match(tokens, {0, 7}), 0);
    return "match";
  }

  void check_one_sequence() {
    if (!model_.empty()) verify(pick());
  }

  void verify(KvSequenceId id) {
    const ModelSequence& s = model_.at(id);
    ASSERT_EQ(static_cast<size_t>(pool_->length(id)), s.tokens.size());
    ASSERT_TRUE(pool_->share_key(id) == s.key);
    ModelSequence committed = s;
    committed.pending.clear();
    const std::vector<uint64_t> chain = chain_of(committed);
    for (size_t p = 0; p < s.tokens.size(); ++p) {
      ASSERT_EQ(pool_->token(id, static_cast<int32_t>(p)), s.tokens[p]);
    }
    std::vector<KvPageView> views;
    for (int l = 0; l < pool_->num_layers(); ++l) {
      for (int h = 0; h < pool_->num_kv_heads(l); ++h) {
        views.clear();
        pool_->append_views(id, l, h, views);
        size_t position = 0;
        for (size_t b = 0; b < views.size(); ++b) {
          ASSERT_EQ(static_cast<size_t>(views[b].begin), position);
          const std::byte* codes = pool_->page_codes(pool_->blocks(id)[b], l, h);
          for (int row = 0; row < views[b].num_tokens; ++row, ++position) {
            ASSERT_TRUE(row_equals(views[b].data, *views[b].layout, row,
                                   row_pattern(chain[position], l, h, 0),
                                   row_pattern(chain[position], l, h, 1)))
                << "sequence " << id << " position " << position << " layer " << l << " head " << h;
            const uint64_t code = row_pattern(chain[position], l, h, 2);
            ASSERT_EQ(std::memcmp(codes + row * 8, &code, 8), 0) << "code of position " << position;
          }
        }
        ASSERT_EQ(position, s.tokens.size());
      }
    }
  }

  /// Everything given back: nothing but tables that never shrink may stay charged.
  void finish() {
    while (!model_.empty()) close(model_.begin()->first);
    for (const KvPinId id : pins_) pool_->unpin(id);
    pins_.clear();
    pool_->reclaim(SIZE_MAX);
    last_stats = pool_->stats();
    EXPECT_EQ(last_stats.num_blocks, 0u);
    EXPECT_EQ(last_stats.num_extents, 0u);
    EXPECT_EQ(last_stats.num_sequences, 0u);
    EXPECT_EQ(last_stats.promised_bytes, 0u);
    EXPECT_EQ(ledger_.used_bytes(MemoryUse::kPages), 0u);
    EXPECT_EQ(ledger_.used_bytes(MemoryUse::kCodes), 0u);
    EXPECT_EQ(ledger_.used_bytes(MemoryUse::kDigests), 0u);
    EXPECT_TRUE(pool_->check_invariants().ok());
    pool_.reset();
    EXPECT_EQ(ledger_.used_bytes(), 0u);
  }

  std::mt19937_64 random_;
  MemoryLedger ledger_;
  size_t cap_;
  std::unique_ptr<KvPool> pool_;
  std::map<KvSequenceId, ModelSequence> model_;
  std::vector<KvPinId> pins_;
};

}  // namespace ikv::test
