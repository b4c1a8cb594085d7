#include "kv/block_table.h"

#include <algorithm>
#include <bit>
#include <new>

namespace ikv {

namespace {
size_t align64(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}
}  // namespace

Status BlockTable::init(int pages_per_block, int block_tokens, MemoryLedger* ledger) {
  pages_ = static_cast<size_t>(pages_per_block);
  block_tokens_ = static_cast<size_t>(block_tokens);
  slots_at_ = align64(kBlocksPerChunk * sizeof(KvBlockRecord));
  tokens_at_ = align64(slots_at_ + kBlocksPerChunk * pages_ * sizeof(SlotId));
  metas_at_ = align64(tokens_at_ + kBlocksPerChunk * block_tokens_ * sizeof(TokenId));
  memory_bytes_ = align64(metas_at_ + kBlocksPerChunk * pages_ * sizeof(KvPageMeta));
  IKV_ASSIGN_OR_RETURN(charge_, ledger->charge(MemoryUse::kTables, 0));
  return {};
}

BlockId BlockTable::allocate() {
  while (first_open_chunk_ < chunks_.size() && chunks_[first_open_chunk_].used == UINT32_MAX) {
    ++first_open_chunk_;
  }
  if (first_open_chunk_ == chunks_.size()) {
    if (!charge_.resize((chunks_.size() + 1) * chunk_bytes()).ok()) return kNoBlock;
    auto memory = AlignedBuffer::allocate(memory_bytes_);
    if (!memory.ok()) {
      const Status shrunk = charge_.resize(chunks_.size() * chunk_bytes());
      IKV_CHECK(shrunk.ok());
      return kNoBlock;
    }
    chunks_.push_back({std::move(memory).value(), 0});
  }
  Chunk& chunk = chunks_[first_open_chunk_];
  const size_t index = static_cast<size_t>(std::countr_one(chunk.used));
  chunk.used |= uint32_t{1} << index;
  ++num_blocks_;
  const BlockId block = static_cast<BlockId>(first_open_chunk_ * kBlocksPerChunk + index);
  new (&record(block)) KvBlockRecord();
  std::fill_n(slots(block), pages_, kNoSlot);
  std::fill_n(metas(block), pages_, KvPageMeta{0, KvPageState::kHot});
  return block;
}

void BlockTable::free(BlockId block) {
  IKV_CHECK(contains(block));
  const size_t c = block / kBlocksPerChunk;
  chunks_[c].used &= ~(uint32_t{1} << block % kBlocksPerChunk);
  --num_blocks_;
  first_open_chunk_ = std::min(first_open_chunk_, c);
}

bool BlockTable::contains(BlockId block) const {
  const size_t c = block / kBlocksPerChunk;
  return c < chunks_.size() && (chunks_[c].used >> block % kBlocksPerChunk & 1) != 0;
}

}  // namespace ikv
