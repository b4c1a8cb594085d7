// Blocks of a KvPool: their life, the idle lists, hashes and sharing.
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "kv/kv_pool.h"

namespace ikv {

BlockId KvPool::allocate_block(bool sealed, KvShareKey key) {
  const BlockId block = allocate_record();
  if (block == kNoBlock) return kNoBlock;
  KvBlockRecord& r = table_.record(block);
  r.key = key;
  r.refcount = 1;
  r.sealed = sealed;
  r.address_stamp = ++last_stamp_;
  KvPageMeta* metas = table_.metas(block);
  const std::vector<uint8_t>& classes = sealed ? sealed_class_ : tail_class_;
  for (int p = 0; p < pages_per_block_; ++p) metas[p].page_class = classes[page_layer_[p]] & 31;
  if (!allocate_slots(block)) {
    free_block(block);  // was never counted live
    return kNoBlock;
  }
  count_live(block, +1);
  return block;
}

bool KvPool::allocate_slots(BlockId block) {
  const auto take = [&](int arena_class, SlotId& slot) {
    return with_room([&] { return (slot = arena_.allocate(arena_class)) != kNoSlot; });
  };
  KvBlockRecord& r = table_.record(block);
  for (int p = 0; p < pages_per_block_; ++p) {
    if (!take(classes_[table_.metas(block)[p].page_class].arena_class, table_.slots(block)[p])) {
      return false;
    }
  }
  if (code_class_ >= 0 && !take(code_class_, r.code_slot)) return false;
  return digest_class_ < 0 || !r.sealed || take(digest_class_, r.digest_slot);
}

void KvPool::free_block(BlockId block) {
  KvBlockRecord& r = table_.record(block);
  for (int p = 0; p < pages_per_block_; ++p) {
    const SlotId slot = table_.slots(block)[p];
    if (slot != kNoSlot) arena_.free(classes_[table_.metas(block)[p].page_class].arena_class, slot);
  }
  if (r.code_slot != kNoSlot) arena_.free(code_class_, r.code_slot);
  if (r.digest_slot != kNoSlot) arena_.free(digest_class_, r.digest_slot);
  if (r.published) {
    IKV_CHECK(r.num_children == 0);
    index_.erase(block);
    if (r.parent != kNoBlock) --table_.record(r.parent).num_children;
  }
  table_.free(block);
}

void KvPool::count_live(BlockId block, int64_t sign) {
  for (int p = 0; p < pages_per_block_; ++p) {
    if (table_.slots(block)[p] == kNoSlot) continue;
    live_slots_[classes_[table_.metas(block)[p].page_class].arena_class] += sign;
  }
  const KvBlockRecord& r = table_.record(block);
  if (r.code_slot != kNoSlot) live_slots_[code_class_] += sign;
  if (r.digest_slot != kNoSlot) live_slots_[digest_class_] += sign;
  live_blocks_ += sign;
}

void KvPool::acquire(BlockId block) {
  if (table_.record(block).refcount++ != 0) return;
  list_remove(block);
  count_live(block, +1);
}

void KvPool::release(BlockId block) {
  KvBlockRecord& r = table_.record(block);
  IKV_CHECK(r.refcount > 0);
  if (--r.refcount != 0) return;
  count_live(block, -1);
  if (r.published) {
    list_push(block);
  } else {
    free_block(block);
  }
}

void KvPool::list_push(BlockId block) {
  KvBlockRecord& r = table_.record(block);
  BlockList& list = r.num_pins > 0 ? pinned_idle_ : idle_;
  r.list_prev = list.back;
  r.list_next = kNoBlock;
  (list.back == kNoBlock ? list.front : table_.record(list.back).list_next) = block;
  list.back = block;
  ++list.size;
}

void KvPool::list_remove(BlockId block) {
  KvBlockRecord& r = table_.record(block);
  BlockList& list = r.num_pins > 0 ? pinned_idle_ : idle_;
  (r.list_prev == kNoBlock ? list.front : table_.record(r.list_prev).list_next) = r.list_next;
  (r.list_next == kNoBlock ? list.back : table_.record(r.list_next).list_prev) = r.list_prev;
  r.list_prev = r.list_next = kNoBlock;
  --list.size;
}

void KvPool::copy_block(BlockId from, BlockId to) {
  for (int p = 0; p < pages_per_block_; ++p) {
    const PageClass& page_class = classes_[table_.metas(from)[p].page_class];
    IKV_CHECK(table_.metas(to)[p].page_class == table_.metas(from)[p].page_class);
    std::memcpy(slot_data(table_.slots(to)[p]), slot_data(table_.slots(from)[p]),
                page_class.layout.page_bytes);
  }
  copy_codes(from, to);
  std::copy_n(table_.tokens(from), config_.block_tokens, table_.tokens(to));
}

void KvPool::copy_codes(BlockId from, BlockId to) {
  if (code_class_ < 0) return;
  std::memcpy(slot_data(table_.record(to).code_slot), slot_data(table_.record(from).code_slot),
              arena_.slot_bytes(code_class_));
}

KvBlockHash KvPool::chain_hash(BlockId parent, KvShareKey key,
                               std::span<const TokenId> tokens) const {
  // All that decides a block's content, and who may read it, goes in: the chain before it, the
  // share key, formats and tokens.
  struct Header {
    KvBlockHash parent;
    uint64_t policy_id, salt;
    uint32_t formats;
    uint32_t num_tokens;
  };
  const Header header{
      parent == kNoBlock ? KvBlockHash{} : table_.record(parent).hash, key.policy_id, key.salt,
      static_cast<uint32_t>(config_.formats.k) << 8 | static_cast<uint32_t>(config_.formats.v),
      static_cast<uint32_t>(tokens.size()) | (parent == kNoBlock ? 1u << 31 : 0u)};
  static_assert(sizeof(Header) == 40, "no padding may enter the hash");
  std::array<std::byte, sizeof(Header) + 128 * sizeof(TokenId)> bytes;
  IKV_CHECK(tokens.size() <= 128);
  std::memcpy(bytes.data(), &header, sizeof(header));
  std::memcpy(bytes.data() + sizeof(header), tokens.data(), tokens.size_bytes());
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), sizeof(header) + tokens.size_bytes());
  return {hash.low64, hash.high64};
}

BlockId KvPool::find_block(BlockId parent, KvShareKey key, std::span<const TokenId> tokens,
                           const KvBlockHash& hash) const {
  return index_.find(hash, [&](BlockId b) {
    const KvBlockRecord& r = table_.record(b);
    return r.parent == parent && r.key == key &&
           std::equal(tokens.begin(), tokens.end(), table_.tokens(b));
  });
}

std::vector<BlockId> KvPool::find_prefix(std::span<const TokenId> tokens, KvShareKey key) const {
  std::vector<BlockId> found;
  const size_t bt = static_cast<size_t>(config_.block_tokens);
  BlockId parent = kNoBlock;
  for (size_t begin = 0; begin + bt <= tokens.size(); begin += bt) {
    const auto part = tokens.subspan(begin, bt);
    const BlockId block = find_block(parent, key, part, chain_hash(parent, key, part));
    if (block == kNoBlock || table_.record(block).num_dropped > 0) break;
    found.push_back(block);
    parent = block;
  }
  return found;
}

BlockId KvPool::publish(BlockId block) {
  KvBlockRecord& r = table_.record(block);
  if (!config_.share_prefixes) return block;
  const std::span<const TokenId> tokens(table_.tokens(block),
                                        static_cast<size_t>(config_.block_tokens));
  const BlockId stored = find_block(r.parent, r.key, tokens, r.hash);
  if (stored == kNoBlock) {
    r.published = true;
    if (r.parent != kNoBlock) ++table_.record(r.parent).num_children;
    index_.insert(block);
    return block;
  }
  acquire(stored);
  upgrade(stored, block);
  release(block);
  ++counters_.num_deduplicated_blocks;
  return stored;
}

void KvPool::upgrade(BlockId stored, BlockId fresh) {
  table_.record(stored).address_stamp = ++last_stamp_;
  KvPageMeta* old_metas = table_.metas(stored);
  for (int p = 0; p < pages_per_block_; ++p) {
    if (old_metas[p].state == KvPageState::kHot) continue;
    if (old_metas[p].state == KvPageState::kDropped) --table_.record(stored).num_dropped;
    std::swap(old_metas[p], table_.metas(fresh)[p]);
    std::swap(table_.slots(stored)[p], table_.slots(fresh)[p]);
    // `fresh` is about to be freed; what it got counts as before, since both blocks are live.
  }
}

}  // namespace ikv
