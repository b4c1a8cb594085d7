// How often each position of a sequence was read, counted while several threads attend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace ikv {

/// Counts readings of positions by decode rows, one for each layer and KV head. The count_*
/// functions may run on any thread; the others only between steps.
class AttendCounter {
 public:
  /// Makes room for positions below `num_positions`; counts stay.
  void grow(size_t num_positions);

  /// A row that could read positions [begin, end) read begin + each of `entries`.
  void count_chosen(LogicalPos begin, LogicalPos end, std::span<const uint32_t> entries);

  /// A row that read all of [begin, end).
  void count_all(LogicalPos begin, LogicalPos end);

  /// Of all times that each position could be read, the share that it was; 1 where it never could.
  /// O(positions).
  std::vector<float> shares() const;

 private:
  // Ranges are kept as differences: two additions, however long the range.
  std::vector<uint32_t> chosen_;
  std::vector<int32_t> visible_steps_;  ///< +1 at a range's begin, -1 at its end
  std::vector<int32_t> all_steps_;      ///< the same for ranges that were read whole
};

}  // namespace ikv
