// Page views and code pointers of running sequences, kept from step to step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/kv_view.h"
#include "kv/kv_pool.h"

namespace ikv {

/// Where the sealed pages of each (layer, KV head) of a sequence lie. A long history has tens of
/// thousands of pages; looking all of them up at every step would cost as much as reading their
/// keys. Entries follow the pool by block id and address stamp. Engine's thread only.
class PageViewCache {
 public:
  explicit PageViewCache(const KvPool& pool) : pool_(pool) {}

  /// One sequence's pages. The last sealed block of a head's list is the caller's newest.
  struct Pages {
    std::vector<BlockId> blocks;
    std::vector<uint64_t> stamps;
    std::vector<std::vector<KvPageView>> views;        ///< [page index of a block][block]
    std::vector<std::vector<const std::byte*>> codes;  ///< likewise; empty without codes
  };

  /// Brings the views of `sequence` up to date for the sealed blocks `committed` and `step`, in
  /// this order. The reference holds until forget().
  Pages& update(KvSequenceId sequence, std::span<const BlockId> committed,
                std::span<const BlockId> step);

  void forget(KvSequenceId sequence) { sequences_.erase(sequence); }

  /// Bytes that one block of a sequence takes here; the pool charges them with the sequence's
  /// tables (KvPoolConfig::sequence_block_bytes).
  static size_t bytes_per_block(size_t pages_per_block, bool codes);

 private:
  void append(Pages& pages, BlockId block) const;

  const KvPool& pool_;
  std::unordered_map<KvSequenceId, Pages> sequences_;
};

}  // namespace ikv
