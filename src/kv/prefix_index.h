// PrefixIndex: published blocks by chained hash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory_ledger.h"
#include "base/result.h"
#include "core/ids.h"
#include "kv/block_table.h"

namespace ikv {

/// Open addressing with linear probing over block ids; hashes stay in the block table. Equal hashes
/// of different content may stand side by side: find() asks its caller to verify. Not thread-safe.
class PrefixIndex {
 public:
  Status init(const BlockTable* table, MemoryLedger* ledger);

  /// Makes insert() safe up to `num_entries` in all; false when the ledger has no room.
  bool ensure_capacity(size_t num_entries);
  void insert(BlockId block);
  void erase(BlockId block);

  /// First block with `hash` that `verify(block)` accepts, else kNoBlock.
  template <typename Verify>
  BlockId find(const KvBlockHash& hash, Verify&& verify) const {
    if (cells_.empty()) return kNoBlock;
    for (size_t i = home(hash);; i = next(i)) {
      if (cells_[i] == kNoBlock) return kNoBlock;
      if (table_->record(cells_[i]).hash == hash && verify(cells_[i])) return cells_[i];
    }
  }

  size_t size() const { return size_; }
  size_t charged_bytes() const { return charge_.num_bytes(); }
  /// Bytes that the index needs to hold `num_entries`, the old cells during growth included.
  size_t bytes_for(size_t num_entries) const;

 private:
  static size_t cells_for(size_t num_entries);
  size_t home(const KvBlockHash& hash) const { return hash.low & (cells_.size() - 1); }
  size_t next(size_t i) const { return (i + 1) & (cells_.size() - 1); }
  void place(BlockId block);

  const BlockTable* table_ = nullptr;
  std::vector<BlockId> cells_;  ///< power of two, at most half full; kNoBlock is empty
  size_t size_ = 0;
  MemoryLedger::Charge charge_;
};

}  // namespace ikv
