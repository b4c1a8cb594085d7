#include "kv/prefix_index.h"

#include <algorithm>
#include <bit>

namespace ikv {

Status PrefixIndex::init(const BlockTable* table, MemoryLedger* ledger) {
  table_ = table;
  IKV_ASSIGN_OR_RETURN(charge_, ledger->charge(MemoryUse::kTables, 0));
  return {};
}

size_t PrefixIndex::cells_for(size_t num_entries) {
  return std::bit_ceil(std::max<size_t>(64, 2 * num_entries));
}

size_t PrefixIndex::bytes_for(size_t num_entries) const {
  const size_t cells = cells_for(num_entries);
  const size_t now = cells_.size();
  return (cells <= now ? now : now + cells) * sizeof(BlockId);
}

bool PrefixIndex::ensure_capacity(size_t num_entries) {
  const size_t cells = cells_for(num_entries);
  if (cells <= cells_.size()) return true;
  if (!charge_.resize(bytes_for(num_entries)).ok()) return false;
  std::vector<BlockId> old(cells, kNoBlock);
  old.swap(cells_);
  for (const BlockId block : old) {
    if (block != kNoBlock) place(block);
  }
  old = {};
  const Status shrunk = charge_.resize(cells * sizeof(BlockId));
  IKV_CHECK(shrunk.ok());
  return true;
}

void PrefixIndex::place(BlockId block) {
  size_t i = home(table_->record(block).hash);
  while (cells_[i] != kNoBlock) i = next(i);
  cells_[i] = block;
}

void PrefixIndex::insert(BlockId block) {
  IKV_CHECK(2 * (size_ + 1) <= cells_.size());
  place(block);
  ++size_;
}

void PrefixIndex::erase(BlockId block) {
  size_t hole = home(table_->record(block).hash);
  while (cells_[hole] != block) {
    IKV_CHECK(cells_[hole] != kNoBlock);
    hole = next(hole);
  }
  // Shift later cells of the run back over the hole when their home allows it, so that no
  // tombstones gather in a long-lived server.
  const size_t mask = cells_.size() - 1;
  for (size_t i = next(hole); cells_[i] != kNoBlock; i = next(i)) {
    const size_t h = home(table_->record(cells_[i]).hash);
    if (((i - h) & mask) >= ((i - hole) & mask)) {
      cells_[hole] = cells_[i];
      hole = i;
    }
  }
  cells_[hole] = kNoBlock;
  --size_;
}

}  // namespace ikv
