// BlockTable: records of blocks and their page entries, as arrays in chunks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/memory_ledger.h"
#include "base/result.h"
#include "core/ids.h"
#include "kv/slot_arena.h"

namespace ikv {

/// Where a page's content is. Hot and cold pages are attended in place at their own precision.
enum class KvPageState : uint8_t {
  kHot,      ///< in the format that it was sealed in (or the tail's)
  kCold,     ///< in memory at lower precision
  kSpilled,  ///< original bytes on disk only
  kDropped,  ///< gone, by the user's leave
};

/// 128-bit chained hash: of a block's tokens, those before it, formats, policy and salt.
struct KvBlockHash {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const KvBlockHash&, const KvBlockHash&) = default;
};

/// Who may share a block: blocks computed under different keys never meet.
struct KvShareKey {
  uint64_t policy_id = 0;  ///< of the pruning policy that the keys and values were computed under
  uint64_t salt = 0;       ///< per tenant; the caller interns names, so that salts do not collide
  friend bool operator==(const KvShareKey&, const KvShareKey&) = default;
};

/// Format class and state of one page: one byte, since there are num_layers * num_kv_heads a block.
struct KvPageMeta {
  uint8_t page_class : 5;
  KvPageState state : 3;
};

/// One entry a block, whatever the number of layers and heads.
struct KvBlockRecord {
  KvBlockHash hash;
  KvShareKey key;
  BlockId parent = kNoBlock;  ///< block before it in the chain; kNoBlock at position 0
  uint32_t refcount = 0;      ///< open sequences that hold it
  uint32_t num_pins = 0;
  uint32_t num_children = 0;  ///< published blocks whose parent it is
  BlockId list_prev = kNoBlock;
  BlockId list_next = kNoBlock;
  SlotId code_slot = kNoSlot;    ///< key codes of all pages
  SlotId digest_slot = kNoSlot;  ///< digests of all pages
  int32_t num_tokens = 0;
  uint32_t num_dropped = 0;    ///< pages in state kDropped
  uint64_t address_stamp = 0;  ///< changes when any page, code or digest gets another address
  bool sealed = false;
  bool published = false;  ///< in the prefix index
};

/// Blocks by id. Memory comes in chunks, charged before allocation, and is kept for reuse: records
/// are some hundred bytes for a block of hundreds of kilobytes, and never moving or freeing them
/// keeps the arithmetic of what still fits exact. Pointers stay valid while the block lives. Lowest
/// free id first. Not thread-safe.
class BlockTable {
 public:
  static constexpr size_t kBlocksPerChunk = 32;

  Status init(int pages_per_block, int block_tokens, MemoryLedger* ledger);

  /// A block with a default record and no slots; kNoBlock when the ledger has no room for a chunk.
  BlockId allocate();
  void free(BlockId block);
  bool contains(BlockId block) const;

  KvBlockRecord& record(BlockId b) { return at<KvBlockRecord>(b, 0, sizeof(KvBlockRecord)); }
  const KvBlockRecord& record(BlockId b) const { return const_cast<BlockTable*>(this)->record(b); }
  SlotId* slots(BlockId b) { return &at<SlotId>(b, slots_at_, pages_ * sizeof(SlotId)); }
  const SlotId* slots(BlockId b) const { return const_cast<BlockTable*>(this)->slots(b); }
  TokenId* tokens(BlockId b) {
    return &at<TokenId>(b, tokens_at_, block_tokens_ * sizeof(TokenId));
  }
  const TokenId* tokens(BlockId b) const { return const_cast<BlockTable*>(this)->tokens(b); }
  KvPageMeta* metas(BlockId b) { return &at<KvPageMeta>(b, metas_at_, pages_); }
  const KvPageMeta* metas(BlockId b) const { return const_cast<BlockTable*>(this)->metas(b); }

  /// Upper bound of ids in use; contains() tells which are.
  size_t end() const { return chunks_.size() * kBlocksPerChunk; }
  bool full() const { return num_blocks_ == end(); }
  size_t num_blocks() const { return num_blocks_; }
  size_t num_chunks() const { return chunks_.size(); }
  /// What one more chunk adds to the ledger.
  size_t chunk_bytes() const { return memory_bytes_ + sizeof(Chunk); }
  size_t charged_bytes() const { return charge_.num_bytes(); }

 private:
  struct Chunk {
    AlignedBuffer memory;
    uint32_t used = 0;  ///< one bit a block
  };
  template <typename T>
  T& at(BlockId b, size_t array_offset, size_t stride) {
    return *reinterpret_cast<T*>(chunks_[b / kBlocksPerChunk].memory.data() + array_offset +
                                 b % kBlocksPerChunk * stride);
  }

  size_t pages_ = 0;
  size_t block_tokens_ = 0;
  size_t slots_at_ = 0, tokens_at_ = 0, metas_at_ = 0, memory_bytes_ = 0;
  std::vector<Chunk> chunks_;
  size_t first_open_chunk_ = 0;  ///< every chunk before it is full
  size_t num_blocks_ = 0;
  MemoryLedger::Charge charge_;
};

}  // namespace ikv
