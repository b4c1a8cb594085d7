// The naive model that the KV pool's property test compares against: token lists, nothing shared.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "core/ids.h"
#include "kv/kv_pool.h"

namespace ikv::test {

/// What one open sequence must look like.
struct ModelSequence {
  KvShareKey key;
  std::vector<TokenId> tokens;
  std::vector<TokenId> pending;  ///< tokens that the step, if any, was reserved for
  bool has_step = false;
  int32_t promised_tokens = 0;
};

/// The bytes that a row must have: a function of all tokens up to it, of its layer and head, and of
/// the share key, so that a page shared with the wrong history is noticed.
inline uint64_t row_pattern(uint64_t chain, int layer, int head, uint64_t kind) {
  uint64_t x = chain * 0x9E3779B97F4A7C15ull + static_cast<uint64_t>(layer * 64 + head) * 4 + kind;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  return x ^ (x >> 32);
}

/// Running chain value after each token of a history; [i] belongs to row i.
inline std::vector<uint64_t> chain_of(const ModelSequence& s) {
  std::vector<uint64_t> chain;
  uint64_t x = s.key.policy_id * 1000003 + s.key.salt * 7919 + 17;
  for (const TokenId t : s.tokens) {
    x = (x ^ static_cast<uint64_t>(t)) * 0x100000001B3ull + 1;
    chain.push_back(x);
  }
  for (const TokenId t : s.pending) {
    x = (x ^ static_cast<uint64_t>(t)) * 0x100000001B3ull + 1;
    chain.push_back(x);
  }
  return chain;
}

/// Row `row` of the K part and, in another kind, of the V part: eight bytes at the row's start.
inline size_t row_bytes(const KvPageLayout& layout, bool k) {
  const uint32_t begin = k ? layout.k_offset : layout.v_offset;
  const uint32_t end = k ? layout.v_offset : layout.page_bytes;
  return (end - begin) / static_cast<uint32_t>(layout.block_tokens);
}

inline void write_row(std::byte* page, const KvPageLayout& layout, int row, uint64_t k,
                      uint64_t v) {
  std::memcpy(page + layout.k_offset + row * row_bytes(layout, true), &k, sizeof(k));
  std::memcpy(page + layout.v_offset + row * row_bytes(layout, false), &v, sizeof(v));
}

inline bool row_equals(const std::byte* page, const KvPageLayout& layout, int row, uint64_t k,
                       uint64_t v) {
  return std::memcmp(page + layout.k_offset + row * row_bytes(layout, true), &k, sizeof(k)) == 0 &&
         std::memcmp(page + layout.v_offset + row * row_bytes(layout, false), &v, sizeof(v)) == 0;
}

/// A page layout for tests of pure bookkeeping: the right sizes, K before V.
inline KvPageLayout test_layout(KvFormats formats, int head_dim, int block_tokens) {
  const auto bytes = [&](KvFormat f) -> uint32_t {
    const auto n = static_cast<uint32_t>(head_dim * block_tokens);
    const auto t = static_cast<uint32_t>(block_tokens);
    switch (f) {
      case KvFormat::kF32:
        return 4 * n;
      case KvFormat::kF16:
      case KvFormat::kBF16:
        return 2 * n;
      case KvFormat::kInt8:
        return n + 4 * t;
      case KvFormat::kInt4:
        return n / 2 + 4 * t;
    }
    return 0;
  };
  KvPageLayout layout;
  layout.formats = formats;
  layout.head_dim = head_dim;
  layout.block_tokens = block_tokens;
  layout.v_offset = bytes(formats.k);
  layout.page_bytes = (layout.v_offset + bytes(formats.v) + 63) / 64 * 64;
  return layout;
}

}  // namespace ikv::test
