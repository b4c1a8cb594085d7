// KvPool::check_invariants: recounts everything from the records.
#include <string>
#include <unordered_map>

#include "kv/kv_pool.h"

namespace ikv {

namespace {
Error broken(const std::string& what) {
  return {ErrorCode::kInternal, "KV pool: " + what};
}
std::string name(BlockId b) {
  return "block " + std::to_string(b);
}
}  // namespace

Status KvPool::check_invariants() const {
  std::unordered_map<BlockId, uint32_t> refcounts;
  IKV_RETURN_IF_ERROR(check_sequences(refcounts));
  IKV_RETURN_IF_ERROR(check_slots(refcounts));
  IKV_RETURN_IF_ERROR(check_sharing(refcounts));
  IKV_RETURN_IF_ERROR(check_list(idle_, false));
  IKV_RETURN_IF_ERROR(check_list(pinned_idle_, true));
  return check_ledger();
}

Status KvPool::check_sequences(std::unordered_map<BlockId, uint32_t>& refcounts) const {
  const int32_t bt = config_.block_tokens;
  Needs promised;
  for (size_t id = 0; id < sequences_.size(); ++id) {
    const Sequence& s = sequences_[id];
    if (!s.open) continue;
    promised += unmet_[id];
    const std::string who = "sequence " + std::to_string(id);
    if (s.num_committed != static_cast<size_t>((s.length + bt - 1) / bt)) {
      return broken(who + " has a wrong number of blocks");
    }
    if (!s.has_step && s.blocks.size() != s.num_committed) {
      return broken(who + " holds blocks of no step");
    }
    if (s.blocks.size() > s.charged_entries) return broken(who + " has an uncharged list");
    for (size_t i = 0; i < s.blocks.size(); ++i) {
      const BlockId b = s.blocks[i];
      if (!table_.contains(b)) return broken(who + " holds a freed block");
      ++refcounts[b];
      if (i >= s.num_committed) continue;
      const KvBlockRecord& r = table_.record(b);
      const int32_t tokens = std::min(bt, s.length - static_cast<int32_t>(i) * bt);
      if (r.num_tokens != tokens || r.sealed != (tokens == bt) || !(r.key == s.key)) {
        return broken(who + ": wrong length, seal or key of " + name(b));
      }
      if (r.sealed && r.parent != (i == 0 ? kNoBlock : s.blocks[i - 1])) {
        return broken(who + ": the chain is broken at " + name(b));
      }
    }
  }
  if (promised.sealed_blocks != promised_.sealed_blocks ||
      promised.tail_blocks != promised_.tail_blocks) {
    return broken("the promises do not add up");
  }
  return {};
}

Status KvPool::check_slots(const std::unordered_map<BlockId, uint32_t>& refcounts) const {
  std::unordered_map<SlotId, BlockId> owners;
  SlotCounts used{}, live{};
  int64_t live_blocks = 0;
  for (BlockId b = 0; b < table_.end(); ++b) {
    if (!table_.contains(b)) continue;
    const KvBlockRecord& r = table_.record(b);
    const auto found = refcounts.find(b);
    if (r.refcount != (found == refcounts.end() ? 0 : found->second)) {
      return broken(name(b) + " has a wrong reference count");
    }
    if (r.refcount == 0 && !r.published) return broken(name(b) + " leaked");
    live_blocks += r.refcount > 0 ? 1 : 0;
    bool twice = false;
    const auto count = [&](SlotId slot, int arena_class) {
      if (slot == kNoSlot) return;
      twice = twice || !owners.emplace(slot, b).second;
      ++used[arena_class];
      if (r.refcount > 0) ++live[arena_class];
    };
    uint32_t dropped = 0;
    for (int p = 0; p < pages_per_block_; ++p) {
      const KvPageMeta meta = table_.metas(b)[p];
      const SlotId slot = table_.slots(b)[p];
      const bool in_memory = meta.state == KvPageState::kHot || meta.state == KvPageState::kCold;
      if (in_memory != (slot != kNoSlot)) return broken(name(b) + ": state and slot disagree");
      dropped += meta.state == KvPageState::kDropped ? 1 : 0;
      count(slot, classes_[meta.page_class].arena_class);
    }
    if (dropped != r.num_dropped) return broken(name(b) + ": dropped pages miscounted");
    if (code_class_ >= 0) count(r.code_slot, code_class_);
    if (digest_class_ >= 0) count(r.digest_slot, digest_class_);
    if (twice) return broken(name(b) + " owns a slot that another page owns");
  }
  for (int c = 0; c < arena_.num_classes(); ++c) {
    if (static_cast<size_t>(used[c]) != arena_.used_slots(c)) return broken("slots leaked");
    if (live[c] != live_slots_[c]) return broken("live slots miscounted");
  }
  return live_blocks == live_blocks_ ? Status() : broken("live blocks miscounted");
}

Status KvPool::check_sharing(const std::unordered_map<BlockId, uint32_t>& refcounts) const {
  std::unordered_map<BlockId, uint32_t> children, pins;
  size_t num_published = 0;
  for (BlockId b = 0; b < table_.end(); ++b) {
    if (!table_.contains(b) || !table_.record(b).published) continue;
    const KvBlockRecord& r = table_.record(b);
    ++num_published;
    if (r.parent != kNoBlock) {
      if (!table_.contains(r.parent) || !table_.record(r.parent).published) {
        return broken(name(b) + " has lost its parent");
      }
      if (refcounts.contains(b) && !refcounts.contains(r.parent)) {
        return broken(name(b) + " is held without its parent");
      }
      ++children[r.parent];
    }
    const std::span<const TokenId> tokens(table_.tokens(b),
                                          static_cast<size_t>(config_.block_tokens));
    if (r.hash != chain_hash(r.parent, r.key, tokens)) return broken(name(b) + ": wrong hash");
    if (find_block(r.parent, r.key, tokens, r.hash) != b) {
      return broken(name(b) + " is not found, or stored twice");
    }
  }
  if (num_published != index_.size()) return broken("the prefix index has stale entries");
  for (const BlockId last : pins_) {
    for (BlockId b = last; b != kNoBlock; b = table_.record(b).parent) {
      if (!table_.contains(b)) return broken("a pin names a freed block");
      ++pins[b];
    }
  }
  for (BlockId b = 0; b < table_.end(); ++b) {
    if (!table_.contains(b)) continue;
    const KvBlockRecord& r = table_.record(b);
    if (r.num_children != children[b]) return broken(name(b) + ": wrong number of children");
    if (r.num_pins != pins[b]) return broken(name(b) + ": wrong number of pins");
  }
  return {};
}

Status KvPool::check_list(const BlockList& list, bool pinned) const {
  std::unordered_map<BlockId, size_t> place;
  BlockId before = kNoBlock;
  for (BlockId b = list.front; b != kNoBlock; b = table_.record(b).list_next) {
    const KvBlockRecord& r = table_.record(b);
    if (!table_.contains(b) || r.refcount != 0 || (r.num_pins > 0) != pinned) {
      return broken(name(b) + " is in the wrong idle list");
    }
    if (r.list_prev != before) return broken("an idle list is torn at " + name(b));
    if (r.parent != kNoBlock && place.contains(r.parent)) {
      return broken(name(b) + " would be reclaimed after its parent");
    }
    place[b] = place.size();
    before = b;
  }
  if (place.size() != list.size || before != list.back) return broken("an idle list is miscounted");
  size_t idle = 0;
  for (BlockId b = 0; b < table_.end(); ++b) {
    if (!table_.contains(b)) continue;
    const KvBlockRecord& r = table_.record(b);
    idle += r.refcount == 0 && (r.num_pins > 0) == pinned ? 1 : 0;
  }
  return idle == list.size ? Status() : broken("an idle block is in no list");
}

Status KvPool::check_ledger() const {
  size_t list_bytes = sequences_.capacity() * (sizeof(Sequence) + sizeof(Needs));
  for (const Sequence& s : sequences_) list_bytes += s.charged_entries * entry_bytes();
  size_t pages = 0, codes = 0, digests = 0;
  for (int c = 0; c < arena_.num_classes(); ++c) {
    const size_t bytes = arena_.num_extents(c) * arena_.extent_bytes();
    (c == code_class_ ? codes : c == digest_class_ ? digests : pages) += bytes;
  }
  const size_t tables =
      list_bytes + table_.num_chunks() * table_.chunk_bytes() + index_.charged_bytes();
  if (ledger_->used_bytes(MemoryUse::kPages) < pages ||
      ledger_->used_bytes(MemoryUse::kCodes) < codes ||
      ledger_->used_bytes(MemoryUse::kDigests) < digests ||
      ledger_->used_bytes(MemoryUse::kTables) < tables) {
    return broken("memory is in use that the ledger does not know of");
  }
  if (own_charged_bytes() != pages + codes + digests + tables) {
    return broken("the ledger's charge is not the sum of the parts");
  }
  if (ledger_->used_bytes() > ledger_->cap_bytes()) return broken("the cap is exceeded");
  return {};
}

}  // namespace ikv
