// Where the rows of a tile stand; internal to ops.
#pragma once

#include <cstddef>

namespace ikv {

// Up to six rows, `stride` bytes apart, as addresses that fit into an instruction. Opaque, since
// GCC otherwise computes them all ahead and keeps them in memory, a load more for each load.
class RowAddresses {
 public:
  inline __attribute__((always_inline)) RowAddresses(const std::byte* first, size_t stride)
      : first_(first), fourth_(first + 3 * stride), stride_(stride) {
    asm("" : "+r"(first_), "+r"(fourth_), "+r"(stride_));
  }
  inline __attribute__((always_inline)) const std::byte* row(int index) const {
    return index < 3 ? first_ + static_cast<size_t>(index) * stride_
                     : fourth_ + static_cast<size_t>(index - 3) * stride_;
  }

 private:
  const std::byte* first_;
  const std::byte* fourth_;
  size_t stride_;
};

}  // namespace ikv
