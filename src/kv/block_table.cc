#include "kv/block_table.h"

#include <algorithm>
#include <bit>
#include <new>

namespace ikv {

namespace {
size_t align64(size_t bytes) { return (bytes + 63) / 64 * 64; }
}  // namespace

Status BlockTable::init(const BlockShape& shape, MemoryLedger* ledger) {
  shape_ = shape;
  const size_t block_bytes = sizeof(KvBlockRecord) + shape.pages * (sizeof(SlotId) + 1) +
                             shape.block_tokens * sizeof(TokenId) + shape.digest_bytes +
                             shape.code_bytes;
  // Small chunks keep the minimum of one session low; below about 1 MiB they also stay clear of
  // huge pages, whose rounding the ledger would not see.
  constexpr size_t kMaxChunkBytes = size_t{1} << 20;
  shift_ = 4;
  while (shift_ > 0 && (block_bytes << shift_) > kMaxChunkBytes) --shift_;
  const size_t n = size_t{1} << shift_;
  slots_at_ = align64(n * sizeof(KvBlockRecord));
  tokens_at_ = align64(slots_at_ + n * shape.pages * sizeof(SlotId));
  metas_at_ = align64(tokens_at_ + n * shape.block_tokens * sizeof(TokenId));
  digests_at_ = align64(metas_at_ + n * shape.pages);
  digest_bytes_ = align64(n * shape.digest_bytes);
  codes_at_ = digests_at_ + digest_bytes_;
  code_bytes_ = align64(n * shape.code_bytes);
  table_bytes_ = digests_at_ + sizeof(Chunk);
  IKV_ASSIGN_OR_RETURN(table_charge_, ledger->charge(MemoryUse::kTables, 0));
  IKV_ASSIGN_OR_RETURN(digest_charge_, ledger->charge(MemoryUse::kDigests, 0));
  IKV_ASSIGN_OR_RETURN(code_charge_, ledger->charge(MemoryUse::kCodes, 0));
  return {};
}

bool BlockTable::charge_chunks(size_t num_chunks) {
  const size_t before = num_chunks_;
  if (table_charge_.resize(num_chunks * table_bytes_).ok() &&
      digest_charge_.resize(num_chunks * digest_bytes_).ok() &&
      code_charge_.resize(num_chunks * code_bytes_).ok()) {
    return true;
  }
  // Shrinking back to what was held cannot be refused.
  (void)table_charge_.resize(before * table_bytes_).ok();
  (void)digest_charge_.resize(before * digest_bytes_).ok();
  return false;
}

bool BlockTable::add_chunk(size_t chunk) {
  if (!charge_chunks(num_chunks_ + 1)) return false;
  auto memory = AlignedBuffer::allocate(codes_at_ + code_bytes_);
  if (!memory.ok()) {
    IKV_CHECK(charge_chunks(num_chunks_));
    return false;
  }
  if (chunk == chunks_.size()) chunks_.emplace_back();
  chunks_[chunk].memory = std::move(memory).value();
  chunks_[chunk].used = 0;
  ++num_chunks_;
  return true;
}

BlockId BlockTable::allocate() {
  const size_t n = blocks_per_chunk();
  const uint64_t full = n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
  while (first_open_chunk_ < chunks_.size() && chunks_[first_open_chunk_].used == full) {
    ++first_open_chunk_;
  }
  // A chunk in use is preferred to the first hole, since filling the hole costs memory.
  size_t chunk = chunks_.size();
  size_t hole = chunks_.size();
  for (size_t c = first_open_chunk_; c < chunks_.size(); ++c) {
    if (chunks_[c].used == 0) {
      hole = std::min(hole, c);
    } else if (chunks_[c].used != full) {
      chunk = c;
      break;
    }
  }
  if (chunk == chunks_.size()) {
    if (!add_chunk(hole)) return kNoBlock;
    chunk = hole;
  }
  const size_t index = static_cast<size_t>(std::countr_one(chunks_[chunk].used));
  chunks_[chunk].used |= uint64_t{1} << index;
  ++num_blocks_;
  const BlockId block = static_cast<BlockId>((chunk << shift_) | index);
  new (&record(block)) KvBlockRecord();
  for (int p = 0; p < shape_.pages; ++p) {
    slots(block)[p] = kNoSlot;
    metas(block)[p] = KvPageMeta{0, KvPageState::kHot};
  }
  return block;
}

void BlockTable::free(BlockId block) {
  IKV_CHECK(contains(block));
  const size_t c = chunk_of(block);
  chunks_[c].used &= ~(uint64_t{1} << (block & (blocks_per_chunk() - 1)));
  --num_blocks_;
  first_open_chunk_ = std::min(first_open_chunk_, c);
  if (chunks_[c].used != 0) return;
  chunks_[c].memory = AlignedBuffer();
  --num_chunks_;
  IKV_CHECK(charge_chunks(num_chunks_));
}

bool BlockTable::contains(BlockId block) const {
  const size_t c = chunk_of(block);
  return c < chunks_.size() &&
         (chunks_[c].used >> (block & (blocks_per_chunk() - 1)) & 1) != 0;
}

}  // namespace ikv
