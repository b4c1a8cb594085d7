// What Highway dispatches to; internal to base.
#pragma once

#include <cstdint>

namespace ikv {

/// The target (HWY_AVX3, ...) whose kernels Highway's dispatch takes now. Thread-safe, costs a
/// call.
int64_t highway_target();

}  // namespace ikv
