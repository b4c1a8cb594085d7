#include "kv/slot_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>

namespace ikv {

size_t choose_extent_bytes(std::span<const SlotClass> slot_classes) {
  constexpr size_t kPage = 4096;
  size_t largest = 0;
  for (const SlotClass& c : slot_classes) largest = std::max(largest, c.slot_bytes);
  const size_t low = std::max<size_t>((8 * largest + kPage - 1) / kPage * kPage, 64 << 10);
  size_t best = low;
  double best_waste = 1.0;
  for (size_t bytes = low; bytes <= low + low / 2; bytes += kPage) {
    // Other classes count a little, so that a tie does not land where they fit badly.
    double waste = 0.0;
    for (size_t c = 0; c < slot_classes.size(); ++c) {
      const double part =
          static_cast<double>(bytes % slot_classes[c].slot_bytes) / static_cast<double>(bytes);
      waste += c == 0 ? part : 0.1 * part;
    }
    if (waste < best_waste) {
      best_waste = waste;
      best = bytes;
    }
  }
  return best;
}

SlotArena::~SlotArena() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
}

Status SlotArena::init(size_t arena_bytes, std::span<const SlotClass> slot_classes,
                       MemoryLedger* ledger) {
  IKV_CHECK(base_ == nullptr && !slot_classes.empty());
  extent_bytes_ = choose_extent_bytes(slot_classes);
  const size_t num = std::max<size_t>(1, (arena_bytes + extent_bytes_ - 1) / extent_bytes_);
  mapped_bytes_ = num * extent_bytes_;
  if (mapped_bytes_ / 64 >= kNoSlot) {
    return unsupported("a KV arena of " + std::to_string(mapped_bytes_) +
                       " bytes: at most 256 GiB can be addressed; lower the KV memory");
  }
  void* base = ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return make_error(ErrorCode::kOutOfMemory, "the system refused " +
                                                   std::to_string(mapped_bytes_) +
                                                   " bytes of address space for the KV cache");
  }
  base_ = static_cast<std::byte*>(base);
  // Huge pages would refill freed extents behind our back, and resident memory is promised to stay
  // under the cap.
  ::madvise(base_, mapped_bytes_, MADV_NOHUGEPAGE);
  extents_.resize(num);
  size_t most = 0;
  for (const SlotClass& slot_class : slot_classes) {
    IKV_CHECK(slot_class.slot_bytes > 0 && slot_class.slot_bytes % 64 == 0);
    Class c;
    c.slot_bytes = slot_class.slot_bytes;
    IKV_ASSIGN_OR_RETURN(c.charge, ledger->charge(slot_class.use, 0));
    c.slots_per_extent = static_cast<uint32_t>(extent_bytes_ / c.slot_bytes);
    c.open.resize((num + 63) / 64);
    c.first_open_word = c.open.size();
    most = std::max<size_t>(most, c.slots_per_extent);
    classes_.push_back(std::move(c));
  }
  words_per_extent_ = (most + 63) / 64;
  used_.resize(words_per_extent_ * num);
  return {};
}

void SlotArena::set_open(Class& c, size_t extent, bool open) {
  const uint64_t bit = uint64_t{1} << (extent % 64);
  if (open) {
    c.open[extent / 64] |= bit;
    c.first_open_word = std::min(c.first_open_word, extent / 64);
  } else {
    c.open[extent / 64] &= ~bit;
  }
}

bool SlotArena::take_extent(int slot_class) {
  while (first_free_extent_ < extents_.size() && extents_[first_free_extent_].slot_class >= 0) {
    ++first_free_extent_;
  }
  if (first_free_extent_ == extents_.size()) return false;
  Class& c = classes_[slot_class];
  if (!c.charge.resize((c.num_extents + 1) * extent_bytes_).ok()) return false;
  ++num_extents_;
  ++c.num_extents;
  Extent& extent = extents_[first_free_extent_];
  extent = {.slot_class = static_cast<int16_t>(slot_class), .evacuating = false, .used = 0};
  set_open(c, first_free_extent_, true);
  return true;
}

SlotId SlotArena::allocate(int slot_class) {
  Class& c = classes_[slot_class];
  while (c.first_open_word < c.open.size() && c.open[c.first_open_word] == 0) ++c.first_open_word;
  if (c.first_open_word == c.open.size() && !take_extent(slot_class)) return kNoSlot;
  const size_t e =
      c.first_open_word * 64 + static_cast<size_t>(std::countr_zero(c.open[c.first_open_word]));
  Extent& extent = extents_[e];
  for (size_t w = 0; w < words_per_extent_; ++w) {
    uint64_t& word = used_words(e)[w];
    const size_t bit = static_cast<size_t>(std::countr_one(word));
    const size_t index = w * 64 + bit;
    if (bit == 64 || index >= c.slots_per_extent) continue;
    word |= uint64_t{1} << bit;
    ++extent.used;
    ++c.used_slots;
    if (extent.used == c.slots_per_extent) set_open(c, e, false);
    return static_cast<SlotId>((e * extent_bytes_ + index * c.slot_bytes) / 64);
  }
  IKV_CHECK(false && "an open extent has no free slot");
  return kNoSlot;
}

void SlotArena::free(int slot_class, SlotId slot) {
  Class& c = classes_[slot_class];
  const size_t e = extent_of(slot);
  Extent& extent = extents_[e];
  IKV_CHECK(extent.slot_class == slot_class);
  const size_t index = (size_t{slot} * 64 - e * extent_bytes_) / c.slot_bytes;
  uint64_t& word = used_words(e)[index / 64];
  const uint64_t bit = uint64_t{1} << (index % 64);
  IKV_CHECK((word & bit) != 0);
  word &= ~bit;
  --extent.used;
  --c.used_slots;
  if (extent.used != 0) {
    if (!extent.evacuating) set_open(c, e, true);
    return;
  }
  set_open(c, e, false);
  extent = {};
  --c.num_extents;
  --num_extents_;
  first_free_extent_ = std::min(first_free_extent_, e);
  ::madvise(base_ + e * extent_bytes_, extent_bytes_, MADV_DONTNEED);
  const Status shrunk = c.charge.resize(c.num_extents * extent_bytes_);
  IKV_CHECK(shrunk.ok());
}

void SlotArena::begin_evacuation(int slot_class) {
  Class& c = classes_[slot_class];
  const size_t keep = (c.used_slots + c.slots_per_extent - 1) / c.slots_per_extent;
  if (keep >= c.num_extents) return;
  std::vector<size_t> mine;
  for (size_t e = 0; e < extents_.size(); ++e) {
    if (extents_[e].slot_class == slot_class) mine.push_back(e);
  }
  std::sort(mine.begin(), mine.end(), [&](size_t a, size_t b) {
    return extents_[a].used != extents_[b].used ? extents_[a].used > extents_[b].used : a < b;
  });
  for (size_t i = keep; i < mine.size(); ++i) {
    extents_[mine[i]].evacuating = true;
    set_open(c, mine[i], false);
  }
}

}  // namespace ikv
