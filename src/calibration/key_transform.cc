#include "calibration/key_transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace ikv {
namespace {

// Energies below this share of the greatest are not told apart: their errors do not show.
constexpr double kLeastShare = 1e-4;

// The values as shares of the greatest, none below kLeastShare; all 1 when there is none. Those
// that are not finite, of a broken model, count as none.
std::vector<double> with_floor(std::span<const double> values) {
  std::vector<double> result;
  for (const double value : values) result.push_back(std::isfinite(value) ? value : 0.0);
  const double greatest = *std::max_element(result.begin(), result.end());
  for (double& value : result) {
    value = greatest > 0.0 ? std::max(value / greatest, kLeastShare) : 1.0;
  }
  return result;
}

}  // namespace

KeyTransform make_key_transform(std::span<const double> key_energy,
                                std::span<const double> query_energy) {
  const size_t size = key_energy.size();
  IKV_CHECK(size > 0 && size % kKeySubDim == 0 && query_energy.size() == size);
  const std::vector<double> queries = with_floor(query_energy);
  std::vector<double> products(size);
  for (size_t c = 0; c < size; ++c) products[c] = key_energy[c] * queries[c];
  const std::vector<double> energy = with_floor(products);

  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return energy[a] > energy[b]; });
  const size_t num_sub = size / kKeySubDim;
  std::vector<double> sums(num_sub, 0.0);
  std::vector<size_t> counts(num_sub, 0);
  KeyTransform transform;
  transform.channel.resize(size);
  transform.scale.resize(size);
  for (const size_t channel : order) {
    size_t least = num_sub;
    for (size_t m = 0; m < num_sub; ++m) {
      if (counts[m] == kKeySubDim) continue;
      if (least == num_sub || sums[m] < sums[least]) least = m;
    }
    const size_t at = least * kKeySubDim + counts[least]++;
    sums[least] += std::log(energy[channel] / kLeastShare);
    transform.channel[at] = static_cast<uint16_t>(channel);
    transform.scale[at] = static_cast<float>(std::sqrt(queries[channel]));
  }
  return transform;
}

}  // namespace ikv
