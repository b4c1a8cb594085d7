#include "pruning/select_tokens.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace ikv {
namespace {

// The bin in which the k-th greatest falls, and how many are in greater bins.
struct Bin {
  int index = 0;
  size_t num_above = 0;
};

Bin find_bin(const std::array<uint32_t, 256>& counts, size_t k) {
  size_t num_above = 0;
  for (int bin = 255; bin > 0; --bin) {
    if (num_above + counts[static_cast<size_t>(bin)] >= k) return {bin, num_above};
    num_above += counts[static_cast<size_t>(bin)];
  }
  return {0, num_above};
}

}  // namespace

ScoreBorder find_top_k_border(std::span<const uint16_t> scores, size_t k) {
  // Four interleaved histograms: equal neighbours would otherwise wait for each other's store.
  std::array<std::array<uint32_t, 256>, 4> parts{};
  size_t i = 0;
  for (; i + 4 <= scores.size(); i += 4) {
    for (size_t lane = 0; lane < 4; ++lane) ++parts[lane][scores[i + lane] >> 8];
  }
  for (; i < scores.size(); ++i) ++parts[0][scores[i] >> 8];
  std::array<uint32_t, 256> high{};
  for (size_t bin = 0; bin < 256; ++bin) {
    high[bin] = parts[0][bin] + parts[1][bin] + parts[2][bin] + parts[3][bin];
  }
  const Bin coarse = find_bin(high, k);
  std::array<uint32_t, 256> low{};
  for (const uint16_t score : scores) {
    if (score >> 8 == coarse.index) ++low[score & 255];
  }
  const Bin fine = find_bin(low, k - coarse.num_above);
  return {static_cast<uint16_t>(coarse.index << 8 | fine.index),
          k - coarse.num_above - fine.num_above};
}

void select_top_k(std::span<const uint16_t> scores, size_t k, std::vector<uint32_t>& selected) {
  const size_t first = selected.size();
  if (k >= scores.size()) {
    selected.resize(first + scores.size());
    for (size_t i = 0; i < scores.size(); ++i) selected[first + i] = static_cast<uint32_t>(i);
    return;
  }
  if (k == 0) return;
  const ScoreBorder border = find_top_k_border(scores, k);
  // Branch-free emission: one slot is always written, the cursor moves only on a hit.
  selected.resize(first + k + 1);
  uint32_t* const out = selected.data() + first;
  size_t count = 0;
  size_t at_border_left = border.num_at_border;
  for (size_t i = 0; i < scores.size() && count < k; ++i) {
    const size_t at_border = static_cast<size_t>(scores[i] == border.score && at_border_left > 0);
    out[count] = static_cast<uint32_t>(i);
    count += static_cast<size_t>(scores[i] > border.score) | at_border;
    at_border_left -= at_border;
  }
  selected.resize(first + k);
}

size_t tokens_for_mass(std::span<const uint16_t> log_mass, float mass) {
  std::vector<uint16_t> sorted(log_mass.begin(), log_mass.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto mass_of = [](uint16_t score) { return std::exp((score - 65535) / 1024.0); };
  double total = 0;
  for (const uint16_t score : sorted) total += mass_of(score);
  double held = 0;
  size_t count = 0;
  while (count < sorted.size() && held < static_cast<double>(mass) * total) {
    held += mass_of(sorted[count++]);
  }
  return count;
}

}  // namespace ikv
