// Memory of a KvPool: what fits, promises, reclaiming, compaction.
//
// Every operation that makes blocks live first asks check_fits(): would the live slots, all unmet
// promises and the new ones fit if every idle block were reclaimed and every class compacted? Only
// then does it allocate, and reclaims and compacts as far as needed. So an operation is refused as
// a whole or succeeds, and a promise cannot be broken by another sequence.
#include <algorithm>
#include <cstring>
#include <limits>
#include <string>

#include "kv/kv_pool.h"

namespace ikv {

namespace {
constexpr size_t kListStep = 16;  // entries by which a block list grows
size_t list_capacity(size_t num_entries) {
  return (num_entries + kListStep - 1) / kListStep * kListStep;
}
int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
}  // namespace

KvPool::Needs KvPool::needs_of(int32_t num_tokens) const {
  Needs needs;
  needs.sealed_blocks = num_tokens / config_.block_tokens;
  // While one block fills and the next begins, two tails exist.
  needs.tail_blocks = num_tokens == 0 ? 0 : num_tokens <= config_.block_tokens ? 1 : 2;
  return needs;
}

KvPool::Needs KvPool::unmet_promise(const Sequence& s, const Needs& extra) const {
  Needs unmet;
  if (s.promised_tokens == 0) return unmet;
  const Needs all = needs_of(s.promised_tokens);
  const int64_t step_tail = s.blocks.size() > s.num_committed + s.num_step_sealed ? 1 : 0;
  const int64_t tails = (s.length % config_.block_tokens != 0 ? 1 : 0) + step_tail;
  const int64_t sealed = static_cast<int64_t>(s.blocks.size()) - tails;
  unmet.sealed_blocks = std::max<int64_t>(0, all.sealed_blocks - sealed - extra.sealed_blocks);
  unmet.tail_blocks = std::max<int64_t>(0, all.tail_blocks - tails - extra.tail_blocks);
  return unmet;
}

void KvPool::refresh_promise(KvSequenceId id) {
  promised_ -= unmet_[id];
  unmet_[id] = unmet_promise(sequences_[id], {});
  promised_ += unmet_[id];
  operation_ = promised_;
}

size_t KvPool::own_charged_bytes() const {
  return arena_.charged_bytes() + table_.charged_bytes() + index_.charged_bytes() +
         sequence_charge_.num_bytes();
}

size_t KvPool::required_bytes(const Needs& total, size_t min_table_chunks) const {
  size_t bytes = sequence_charge_.num_bytes() + static_cast<size_t>(total.table_bytes);
  for (int c = 0; c < arena_.num_classes(); ++c) {
    const int64_t slots = live_slots_[c] + total.slots[c] + total.sealed_blocks * sealed_slots_[c] +
                          total.tail_blocks * tail_slots_[c];
    bytes +=
        static_cast<size_t>(divide_up(slots, static_cast<int64_t>(arena_.slots_per_extent(c)))) *
        arena_.extent_bytes();
  }
  const int64_t blocks = live_blocks_ + total.sealed_blocks + total.tail_blocks;
  const size_t chunks =
      std::max({table_.num_chunks(), min_table_chunks,
                static_cast<size_t>(divide_up(blocks, BlockTable::kBlocksPerChunk))});
  return bytes + chunks * table_.chunk_bytes() +
         index_.bytes_for(chunks * BlockTable::kBlocksPerChunk);
}

Status KvPool::check_fits(const Needs& total) const {
  const size_t required = required_bytes(total);
  const size_t others = ledger_->used_bytes() - own_charged_bytes();
  const size_t cap =
      std::min(ledger_->cap_bytes(), arena_.max_extents() * arena_.extent_bytes() + others);
  if (required + others <= cap) return {};
  const size_t now = required_bytes(promised_);
  const size_t free = cap > now + others ? cap - now - others : 0;
  return make_error(ErrorCode::kOutOfMemory,
                    "KV memory: " + std::to_string(required - std::min(required, now)) +
                        " bytes needed, " + std::to_string(free) +
                        " free after reclaiming all idle prefixes, under the cap of " +
                        std::to_string(ledger_->cap_bytes()) + " bytes");
}

size_t KvPool::bytes_needed(int32_t num_tokens) const {
  const Needs needs = needs_of(num_tokens);
  size_t bytes = 16 * (sizeof(Sequence) + sizeof(Needs));
  const int64_t blocks = needs.sealed_blocks + needs.tail_blocks;
  bytes += list_capacity(static_cast<size_t>(blocks) + 1) * entry_bytes();
  for (int c = 0; c < arena_.num_classes(); ++c) {
    const int64_t slots =
        needs.sealed_blocks * sealed_slots_[c] + needs.tail_blocks * tail_slots_[c];
    bytes +=
        static_cast<size_t>(divide_up(slots, static_cast<int64_t>(arena_.slots_per_extent(c)))) *
        arena_.extent_bytes();
  }
  const size_t chunks = static_cast<size_t>(divide_up(blocks, BlockTable::kBlocksPerChunk));
  return bytes + chunks * table_.chunk_bytes() +
         PrefixIndex().bytes_for(chunks * BlockTable::kBlocksPerChunk);
}

Status KvPool::promise(KvSequenceId id, int32_t num_tokens) {
  IKV_CHECK(num_tokens >= 0);
  Sequence& s = sequence(id);
  const int32_t before = s.promised_tokens;
  s.promised_tokens = num_tokens;
  const Needs needs = needs_of(num_tokens);
  const size_t entries = static_cast<size_t>(needs.sealed_blocks + needs.tail_blocks) + 1;
  Needs total = promised_;
  total -= unmet_[id];
  total += unmet_promise(s, {});
  total.table_bytes += list_growth_bytes(s, entries);
  Status fits = check_fits(total);
  // The list grows now, so that steps within the promise never have to.
  if (fits.ok() && num_tokens > 0 && !grow_list(s, entries)) {
    fits = make_error(ErrorCode::kOutOfMemory, "no KV memory for a session's block list");
  }
  if (!fits.ok()) s.promised_tokens = before;
  refresh_promise(id);
  publish_stats();
  return fits;
}

int64_t KvPool::list_growth_bytes(const Sequence& s, size_t num_entries) const {
  if (num_entries <= s.charged_entries) return 0;
  return static_cast<int64_t>((list_capacity(num_entries) - s.charged_entries) * entry_bytes());
}

bool KvPool::grow_list(Sequence& s, size_t num_entries) {
  const auto growth = static_cast<size_t>(list_growth_bytes(s, num_entries));
  if (growth == 0) return true;
  const auto charge = [&] {
    return sequence_charge_.resize(sequence_charge_.num_bytes() + growth).ok();
  };
  if (!with_room(charge)) return false;
  s.charged_entries = list_capacity(num_entries);
  s.blocks.reserve(s.charged_entries);
  return true;
}

bool KvPool::grow_tables() {
  return index_.ensure_capacity((table_.num_chunks() + 1) * BlockTable::kBlocksPerChunk);
}

BlockId KvPool::allocate_record() {
  BlockId block = kNoBlock;
  // Tables never shrink, so they may grow for the sake of idle blocks only where that leaves room
  // for everything live and promised.
  const auto with_spare = [&] {
    if (table_.full()) {
      const size_t others = ledger_->used_bytes() - own_charged_bytes();
      const size_t required = required_bytes(operation_, table_.num_chunks() + 1);
      if (required + others > ledger_->cap_bytes() || !grow_tables()) return false;
    }
    return (block = table_.allocate()) != kNoBlock;
  };
  const auto planned = [&] {
    return (!table_.full() || grow_tables()) && (block = table_.allocate()) != kNoBlock;
  };
  if (with_room(with_spare) || with_room(planned)) return block;
  return kNoBlock;
}

bool KvPool::make_room() {
  // Compaction first where it gives much for little, last where it is all that is left.
  return compact(8) || reclaim_one() || compact(std::numeric_limits<int64_t>::max());
}

bool KvPool::reclaim_one() {
  const BlockId block = idle_.front != kNoBlock ? idle_.front : pinned_idle_.front;
  if (block == kNoBlock) return false;
  KvBlockRecord& r = table_.record(block);
  // Children are released before or with their parents, so the oldest idle block is a leaf.
  IKV_CHECK(r.num_children == 0 && r.refcount == 0);
  if (r.num_pins > 0) std::replace(pins_.begin(), pins_.end(), block, r.parent);
  list_remove(block);
  free_block(block);
  ++counters_.num_reclaimed_blocks;
  return true;
}

bool KvPool::compact(int64_t divisor) {
  for (int c = 0; c < arena_.num_classes(); ++c) {
    const auto extents = static_cast<int64_t>(arena_.num_extents(c));
    const auto per_extent = static_cast<int64_t>(arena_.slots_per_extent(c));
    const int64_t unused = extents * per_extent - static_cast<int64_t>(arena_.used_slots(c));
    if (unused >= per_extent * std::max<int64_t>(1, extents / divisor)) {
      compact_class(c);
      return true;
    }
  }
  return false;
}

void KvPool::compact_class(int arena_class) {
  arena_.begin_evacuation(arena_class);
  const auto move = [&](SlotId& slot) {
    if (slot == kNoSlot || !arena_.evacuating(slot)) return;
    const SlotId to = arena_.allocate(arena_class);
    IKV_CHECK(to != kNoSlot);
    std::memcpy(arena_.data(to), arena_.data(slot), arena_.slot_bytes(arena_class));
    arena_.free(arena_class, slot);
    slot = to;
    ++counters_.num_moved_pages;
  };
  for (BlockId b = 0; b < table_.end(); ++b) {
    if (!table_.contains(b)) continue;
    const uint64_t moved_before = counters_.num_moved_pages;
    if (arena_class == code_class_) {
      move(table_.record(b).code_slot);
    } else if (arena_class == digest_class_) {
      move(table_.record(b).digest_slot);
    } else {
      const KvPageMeta* metas = table_.metas(b);
      for (int p = 0; p < pages_per_block_; ++p) {
        if (classes_[metas[p].page_class].arena_class == arena_class) move(table_.slots(b)[p]);
      }
    }
    if (counters_.num_moved_pages != moved_before) table_.record(b).address_stamp = ++last_stamp_;
  }
}

Status KvPool::set_cap(size_t cap_bytes) {
  const size_t others = ledger_->used_bytes() - own_charged_bytes();
  const size_t most = arena_.max_extents() * arena_.extent_bytes();
  if (cap_bytes > most && cap_bytes > ledger_->cap_bytes()) {
    return invalid_argument("a KV memory of " + std::to_string(cap_bytes) +
                            " bytes: the address space reserved at start allows " +
                            std::to_string(most) + "; restart with a larger value");
  }
  const size_t required = required_bytes(promised_) + others;
  if (required > cap_bytes) {
    return make_error(ErrorCode::kOutOfMemory,
                      "the KV memory cannot become " + std::to_string(cap_bytes) + " bytes: " +
                          std::to_string(required) + " are in use by or promised to sessions");
  }
  while (ledger_->used_bytes() > cap_bytes && make_room()) {
  }
  Status status = ledger_->set_cap(cap_bytes);
  publish_stats();
  return status;
}

size_t KvPool::reclaim(size_t num_bytes) {
  const size_t before = own_charged_bytes();
  const auto returned = [&] { return before - std::min(before, own_charged_bytes()); };
  while (returned() < num_bytes && make_room()) {
  }
  const size_t bytes = returned();
  publish_stats();
  return bytes;
}

size_t KvPool::reclaim_blocks(size_t num_blocks) {
  size_t done = 0;
  while (done < num_blocks && reclaim_one()) ++done;
  publish_stats();
  return done;
}

void KvPool::publish_stats() {
  KvPoolStats& s = counters_;
  s.num_blocks = table_.num_blocks();
  s.num_idle_blocks = idle_.size + pinned_idle_.size;
  s.num_pinned_idle_blocks = pinned_idle_.size;
  s.num_extents = arena_.num_extents();
  s.live_page_bytes = s.idle_page_bytes = 0;
  for (int c = 0; c < arena_.num_classes(); ++c) {
    if (c == code_class_ || c == digest_class_) continue;
    const size_t live = static_cast<size_t>(live_slots_[c]);
    s.live_page_bytes += live * arena_.slot_bytes(c);
    s.idle_page_bytes += (arena_.used_slots(c) - live) * arena_.slot_bytes(c);
  }
  s.charged_bytes = own_charged_bytes();
  s.promised_bytes = required_bytes(promised_) - required_bytes({});
  std::lock_guard lock(stats_mutex_);
  stats_ = counters_;
}

KvPoolStats KvPool::stats() const {
  std::lock_guard lock(stats_mutex_);
  return stats_;
}

}  // namespace ikv
