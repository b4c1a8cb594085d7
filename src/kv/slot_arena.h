// SlotArena: one range of address space cut into extents, each cut into equal slots of one class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/memory_ledger.h"
#include "base/result.h"

namespace ikv {

/// Position of a slot in the arena in units of 64 bytes, so that 32 bits reach 256 GiB.
using SlotId = uint32_t;
inline constexpr SlotId kNoSlot = UINT32_MAX;

/// Slots of one class: their size, a multiple of 64, and what they are charged as.
struct SlotClass {
  size_t slot_bytes = 0;
  MemoryUse use = MemoryUse::kPages;
};

/// Memory for pages, codes and digests. Extents belong to one slot class while any of their slots
/// is in use, and go back to the common pool (and their memory to the system) when empty. Each
/// extent is charged before its first use. Slots are taken from the lowest extent that has one,
/// which keeps high extents emptying. Not thread-safe.
class SlotArena {
 public:
  SlotArena() = default;
  ~SlotArena();
  SlotArena(const SlotArena&) = delete;
  SlotArena& operator=(const SlotArena&) = delete;

  /// Reserves `arena_bytes` of address space (rounded up to extents); the first class is the one
  /// whose waste matters most. kOutOfMemory when the system refuses.
  Status init(size_t arena_bytes, std::span<const SlotClass> slot_classes, MemoryLedger* ledger);

  /// A slot of `slot_class`, or kNoSlot when the ledger or the arena has no room for a new extent.
  SlotId allocate(int slot_class);
  void free(int slot_class, SlotId slot);

  std::byte* data(SlotId slot) const { return base_ + size_t{slot} * 64; }
  size_t extent_of(SlotId slot) const { return size_t{slot} * 64 / extent_bytes_; }

  /// Stops taking slots from the emptiest extents of the class, as many as the others can absorb,
  /// and tells which by evacuating(). Ends when they are empty.
  void begin_evacuation(int slot_class);
  bool evacuating(SlotId slot) const { return extents_[extent_of(slot)].evacuating; }

  size_t extent_bytes() const { return extent_bytes_; }
  size_t max_extents() const { return extents_.size(); }
  size_t num_extents() const { return num_extents_; }
  int num_classes() const { return static_cast<int>(classes_.size()); }
  size_t num_extents(int slot_class) const { return classes_[slot_class].num_extents; }
  size_t slots_per_extent(int slot_class) const { return classes_[slot_class].slots_per_extent; }
  size_t used_slots(int slot_class) const { return classes_[slot_class].used_slots; }
  size_t slot_bytes(int slot_class) const { return classes_[slot_class].slot_bytes; }
  size_t charged_bytes() const { return num_extents_ * extent_bytes_; }

 private:
  struct Class {
    size_t slot_bytes = 0;
    MemoryLedger::Charge charge;
    uint32_t slots_per_extent = 0;
    size_t num_extents = 0;
    size_t used_slots = 0;
    std::vector<uint64_t> open;  ///< bit e: extent e is of this class and has a free slot
    size_t first_open_word = 0;  ///< no bit is set in words before it
  };
  struct Extent {
    int16_t slot_class = -1;
    bool evacuating = false;
    uint32_t used = 0;
  };

  bool take_extent(int slot_class);
  void set_open(Class& c, size_t extent, bool open);
  std::span<uint64_t> used_words(size_t extent) {
    return {used_.data() + extent * words_per_extent_, words_per_extent_};
  }

  std::byte* base_ = nullptr;
  size_t mapped_bytes_ = 0;
  size_t extent_bytes_ = 0;
  size_t words_per_extent_ = 0;
  size_t num_extents_ = 0;
  size_t first_free_extent_ = 0;  ///< no extent before it is free
  std::vector<Class> classes_;
  std::vector<Extent> extents_;
  std::vector<uint64_t> used_;  ///< one bit a slot, by extent
};

/// The extent size for these slots: at least eight of the largest, a multiple of 4 KiB, with the
/// least waste for the first class (sealed pages, which are most of the memory).
size_t choose_extent_bytes(std::span<const SlotClass> slot_classes);

}  // namespace ikv
