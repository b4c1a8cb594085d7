// Which target Highway's dispatch takes now, by asking a function that it dispatches: cheap, unlike
// hwy::SupportedTargets(), which asks the CPU each time (tens of µs in a virtual machine).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/highway_target.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include <hwy/highway.h>

#include <cstdint>

#include "base/highway_target.h"

HWY_BEFORE_NAMESPACE();
namespace ikv::HWY_NAMESPACE {

int64_t own_target() {
  return HWY_TARGET;
}

}  // namespace ikv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ikv {

HWY_EXPORT(own_target);

int64_t highway_target() {
  return HWY_DYNAMIC_DISPATCH(own_target)();
}

}  // namespace ikv
#endif
