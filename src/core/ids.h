// Integer names of things; plain types, since they live in arrays and cross the C API.
#pragma once

#include <cstdint>

namespace ikv {

using TokenId = int32_t;
/// Index of a token in a session's transcript, 0..N-1; never changes.
using LogicalPos = int32_t;
using SessionId = uint64_t;
using BlockId = uint32_t;

inline constexpr BlockId kNoBlock = UINT32_MAX;
inline constexpr TokenId kNoToken = -1;

}  // namespace ikv
