#include "engine/audit_counter.h"

#include <atomic>

#include "base/check.h"

namespace ikv {
namespace {

template <typename T>
void add(T& counter, T value) {
  std::atomic_ref<T>(counter).fetch_add(value, std::memory_order_relaxed);
}

}  // namespace

void AttendCounter::grow(size_t num_positions) {
  if (num_positions <= chosen_.size()) return;
  chosen_.resize(num_positions);
  visible_steps_.resize(num_positions + 1);
  all_steps_.resize(num_positions + 1);
}

void AttendCounter::count_chosen(LogicalPos begin, LogicalPos end,
                                 std::span<const uint32_t> entries) {
  IKV_CHECK(static_cast<size_t>(end) <= chosen_.size());
  add(visible_steps_[static_cast<size_t>(begin)], 1);
  add(visible_steps_[static_cast<size_t>(end)], -1);
  for (const uint32_t entry : entries) add(chosen_[static_cast<size_t>(begin) + entry], 1u);
}

void AttendCounter::count_all(LogicalPos begin, LogicalPos end) {
  IKV_CHECK(static_cast<size_t>(end) <= chosen_.size());
  for (std::vector<int32_t>* steps : {&visible_steps_, &all_steps_}) {
    add((*steps)[static_cast<size_t>(begin)], 1);
    add((*steps)[static_cast<size_t>(end)], -1);
  }
}

std::vector<float> AttendCounter::shares() const {
  std::vector<float> shares(chosen_.size(), 1.0f);
  int64_t visible = 0;
  int64_t whole = 0;
  for (size_t i = 0; i < chosen_.size(); ++i) {
    visible += visible_steps_[i];
    whole += all_steps_[i];
    if (visible <= 0) continue;
    shares[i] =
        static_cast<float>(static_cast<double>(whole + chosen_[i]) / static_cast<double>(visible));
  }
  return shares;
}

}  // namespace ikv
