#include "base/memory_ledger.h"

#include <algorithm>

namespace ikv {

Result<MemoryLedger::Charge> MemoryLedger::charge(MemoryUse use, size_t num_bytes) {
  Charge charge;
  charge.ledger_ = this;
  charge.use_ = use;
  IKV_RETURN_IF_ERROR(charge.resize(num_bytes));
  return charge;
}

Status MemoryLedger::Charge::resize(size_t num_bytes) {
  IKV_CHECK(ledger_ != nullptr);
  if (num_bytes < num_bytes_) {
    ledger_->release(use_, num_bytes_ - num_bytes);
    num_bytes_ = num_bytes;
    return {};
  }
  const size_t extra = num_bytes - num_bytes_;
  std::lock_guard lock(ledger_->mutex_);
  const size_t free = ledger_->cap_bytes_ - ledger_->used_total_;
  if (extra > free) {
    return make_error(ErrorCode::kOutOfMemory, "KV memory: " + std::to_string(extra) +
                                                   " bytes needed, " + std::to_string(free) +
                                                   " free under the cap of " +
                                                   std::to_string(ledger_->cap_bytes_) + " bytes");
  }
  ledger_->used_total_ += extra;
  ledger_->used_[static_cast<size_t>(use_)] += extra;
  ledger_->peak_ = std::max(ledger_->peak_, ledger_->used_total_);
  num_bytes_ = num_bytes;
  return {};
}

void MemoryLedger::Charge::reset() {
  if (ledger_ != nullptr && num_bytes_ != 0) ledger_->release(use_, num_bytes_);
  num_bytes_ = 0;
}

void MemoryLedger::release(MemoryUse use, size_t num_bytes) {
  std::lock_guard lock(mutex_);
  IKV_CHECK(used_total_ >= num_bytes);
  used_total_ -= num_bytes;
  used_[static_cast<size_t>(use)] -= num_bytes;
}

size_t MemoryLedger::cap_bytes() const {
  std::lock_guard lock(mutex_);
  return cap_bytes_;
}
size_t MemoryLedger::used_bytes() const {
  std::lock_guard lock(mutex_);
  return used_total_;
}
size_t MemoryLedger::used_bytes(MemoryUse use) const {
  std::lock_guard lock(mutex_);
  return used_[static_cast<size_t>(use)];
}
size_t MemoryLedger::peak_bytes() const {
  std::lock_guard lock(mutex_);
  return peak_;
}
size_t MemoryLedger::free_bytes() const {
  std::lock_guard lock(mutex_);
  return cap_bytes_ - used_total_;
}

Status MemoryLedger::set_cap(size_t cap_bytes) {
  std::lock_guard lock(mutex_);
  if (cap_bytes < used_total_) {
    return make_error(ErrorCode::kOutOfMemory,
                      "the KV memory cap cannot become " + std::to_string(cap_bytes) +
                          " bytes: " + std::to_string(used_total_) + " are in use");
  }
  cap_bytes_ = cap_bytes;
  return {};
}

}  // namespace ikv
