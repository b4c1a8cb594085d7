// Level 2's selection: the k best of many 16-bit scores, in transcript order, without sorting.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ikv {

/// Appends to `selected` the indices of the `k` greatest `scores` in ascending order of index
/// (all of them when k >= size). Ties at the border go to the earlier index, so that the result is
/// a function of the scores alone. Two passes of a 256-bin histogram find the border, one pass
/// emits: O(n), no allocation beyond `selected`. Thread-safe.
void select_top_k(std::span<const uint16_t> scores, size_t k, std::vector<uint32_t>& selected);

/// The least number of tokens that together hold the share `mass` of all mass, by scores of
/// group_log_mass() (1,024 steps a nat, 65,535 is mass 1). O(n log n).
size_t tokens_for_mass(std::span<const uint16_t> log_mass, float mass);

/// The border that select_top_k() uses: every score above it is selected, `num_at_border` of those
/// equal to it.
struct ScoreBorder {
  uint16_t score = 0;
  size_t num_at_border = 0;
};
ScoreBorder find_top_k_border(std::span<const uint16_t> scores, size_t k);

}  // namespace ikv
