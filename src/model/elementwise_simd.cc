// Gates of the feed-forward, compiled for each target by Highway and chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "model/elementwise_simd.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "model/elementwise.h"

HWY_BEFORE_NAMESPACE();
namespace ikv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// exp(-88) is about the smallest normal float: below it the logistic is 0 (or 1) to float's
// precision.
template <class D, class V>
HWY_ATTR V logistic(D d, V x) {
  const V bounded = hn::Min(hn::Max(x, hn::Set(d, -87.0f)), hn::Set(d, 87.0f));
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Neg(bounded))));
}

// tanh-approximated GELU is x * logistic(2u), since 0.5 (1 + tanh u) = logistic(2u).
template <class D, class V>
HWY_ATTR V activate(D d, GateActivation activation, V x) {
  if (activation == GateActivation::kSilu) return hn::Mul(x, logistic(d, x));
  const V cube = hn::Mul(hn::Mul(x, x), x);
  const V u2 = hn::Mul(hn::Set(d, 1.5957691216f), hn::MulAdd(hn::Set(d, 0.044715f), cube, x));
  return hn::Mul(x, logistic(d, u2));
}

HWY_ATTR void gate(GateActivation activation, float* HWY_RESTRICT gates,
                   const float* HWY_RESTRICT up, size_t size) {
  const hn::ScalableTag<float> d;
  const size_t n = hn::Lanes(d);
  size_t i = 0;
  for (; i + n <= size; i += n) {
    const auto y = activate(d, activation, hn::LoadU(d, gates + i));
    hn::StoreU(hn::Mul(y, hn::LoadU(d, up + i)), d, gates + i);
  }
  if (i == size) return;
  // The rest takes the same way through a padded copy, so that an element's value does not depend
  // on where it stands.
  HWY_ALIGN float rest[hn::MaxLanes(d)] = {};
  std::copy(gates + i, gates + size, rest);
  const auto y = activate(d, activation, hn::Load(d, rest));
  hn::Store(y, d, rest);
  for (size_t j = 0; i + j < size; ++j) gates[i + j] = rest[j] * up[i + j];
}

}  // namespace ikv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ikv {

HWY_EXPORT(gate);

void gate_values(GateActivation activation, float* gates, const float* up, size_t size) {
  HWY_DYNAMIC_DISPATCH(gate)(activation, gates, up, size);
}

}  // namespace ikv
#endif
