// MemoryLedger: every byte of cache memory is charged here before it is allocated.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>

#include "base/result.h"

namespace ikv {

/// What a charge is for; the metrics and the audit show one figure each.
enum class MemoryUse { kPages = 0, kCodes, kDigests, kTables, kScratch, kSnapshots, kNumUses };

/// Bytes charged against one cap. Thread-safe. A charge over the cap is refused, never an abort.
class MemoryLedger {
 public:
  class Charge;

  explicit MemoryLedger(size_t cap_bytes) : cap_bytes_(cap_bytes) {}
  MemoryLedger(const MemoryLedger&) = delete;
  MemoryLedger& operator=(const MemoryLedger&) = delete;

  /// Charges `num_bytes`; kOutOfMemory with needed, free and cap when it does not fit. Release by
  /// destroying the Charge (which must not outlive the ledger).
  Result<Charge> charge(MemoryUse use, size_t num_bytes);

  size_t cap_bytes() const;
  size_t used_bytes() const;
  size_t used_bytes(MemoryUse use) const;
  size_t peak_bytes() const;
  size_t free_bytes() const;

  /// Changes the cap. Under the bytes in use it is refused with both figures.
  Status set_cap(size_t cap_bytes);

 private:
  void release(MemoryUse use, size_t num_bytes);

  mutable std::mutex mutex_;
  size_t cap_bytes_;
  size_t used_total_ = 0;
  size_t peak_ = 0;
  std::array<size_t, static_cast<size_t>(MemoryUse::kNumUses)> used_{};
};

/// Bytes held until destruction. Move-only; may grow or shrink.
class MemoryLedger::Charge {
 public:
  Charge() = default;
  ~Charge() { reset(); }
  Charge(Charge&& other) noexcept { swap(other); }
  Charge& operator=(Charge&& other) noexcept {
    swap(other);
    return *this;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;

  size_t num_bytes() const { return num_bytes_; }
  /// Changes the amount; growing may be refused, which leaves the charge as it was.
  Status resize(size_t num_bytes);
  void reset();

 private:
  friend class MemoryLedger;
  void swap(Charge& other) {
    std::swap(ledger_, other.ledger_);
    std::swap(use_, other.use_);
    std::swap(num_bytes_, other.num_bytes_);
  }

  MemoryLedger* ledger_ = nullptr;
  MemoryUse use_ = MemoryUse::kScratch;
  size_t num_bytes_ = 0;
};

}  // namespace ikv
