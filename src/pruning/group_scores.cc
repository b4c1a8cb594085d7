// Compiled for each target by Highway and chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "pruning/group_scores.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "pruning/group_scores.h"

HWY_BEFORE_NAMESPACE();
namespace ikv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// 16 lanes whatever the target, so that sums are taken in one order everywhere.
using D16 = hn::CappedTag<float, 16>;

HWY_ATTR float max_of(const float* HWY_RESTRICT x, size_t size) {
  const D16 d;
  const size_t n = hn::Lanes(d);
  auto best = hn::Set(d, -std::numeric_limits<float>::infinity());
  size_t i = 0;
  for (; i + n <= size; i += n) best = hn::Max(best, hn::LoadU(d, x + i));
  float result = hn::GetLane(hn::MaxOfLanes(d, best));
  for (; i < size; ++i) result = std::max(result, x[i]);
  return result;
}

HWY_ATTR float log_sum_exp(const float* HWY_RESTRICT x, size_t size) {
  const float highest = max_of(x, size);
  if (!(highest > -std::numeric_limits<float>::infinity())) return highest;
  const D16 d;
  const size_t n = hn::Lanes(d);
  const auto shift = hn::Set(d, highest);
  const auto floor = hn::Set(d, -80.0f);
  auto sum = hn::Zero(d);
  size_t i = 0;
  for (; i + n <= size; i += n) {
    const auto y = hn::Max(hn::Sub(hn::LoadU(d, x + i), shift), floor);
    sum = hn::Add(sum, hn::Exp(d, y));
  }
  float total = hn::GetLane(hn::SumOfLanes(d, sum));
  for (; i < size; ++i) total += std::exp(std::max(x[i] - highest, -80.0f));
  return highest + std::log(total);
}

HWY_ATTR void combine(const float* HWY_RESTRICT logits, size_t stride, int num_queries, size_t size,
                      const float* HWY_RESTRICT lse, uint16_t* HWY_RESTRICT scores) {
  const D16 d;
  const hn::RebindToSigned<D16> di;
  const hn::Rebind<uint16_t, D16> d16;
  const size_t n = hn::Lanes(d);
  const auto low = hn::Zero(d);
  const auto high = hn::Set(d, 65535.0f);
  size_t i = 0;
  const auto at = [&](size_t index) HWY_ATTR {
    auto best = hn::Set(d, -1e30f);
    for (int g = 0; g < num_queries; ++g) {
      const float* row = logits + static_cast<size_t>(g) * stride;
      best = hn::Max(best, hn::Sub(hn::LoadU(d, row + index), hn::Set(d, lse[g])));
    }
    const auto scaled = hn::MulAdd(best, hn::Set(d, 1024.0f), high);
    return hn::DemoteTo(d16, hn::ConvertTo(di, hn::Min(hn::Max(scaled, low), high)));
  };
  for (; i + n <= size; i += n) hn::StoreU(at(i), d16, scores + i);
  for (; i < size; ++i) {
    float best = -1e30f;
    for (int g = 0; g < num_queries; ++g) {
      best = std::max(best, logits[static_cast<size_t>(g) * stride + i] - lse[g]);
    }
    const float scaled = std::min(std::max(best * 1024.0f + 65535.0f, 0.0f), 65535.0f);
    scores[i] = static_cast<uint16_t>(scaled);
  }
}

}  // namespace ikv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ikv {

HWY_EXPORT(log_sum_exp);
HWY_EXPORT(combine);

void group_log_mass(const float* logits, size_t stride, int num_queries, size_t size,
                    uint16_t* scores, float* lse) {
  for (int g = 0; g < num_queries; ++g) {
    lse[g] = HWY_DYNAMIC_DISPATCH(log_sum_exp)(logits + static_cast<size_t>(g) * stride, size);
    // Nothing to normalise by: every token of this query scores 0.
    if (!std::isfinite(lse[g])) lse[g] = std::numeric_limits<float>::max();
  }
  HWY_DYNAMIC_DISPATCH(combine)(logits, stride, num_queries, size, lse, scores);
}

}  // namespace ikv
#endif
