// From a format at run time to one at compile time; internal to ops.
#pragma once

#include "ops/kernels.h"

namespace ikv {

// Calls Product::run<bits, group, minima, two level>(p) with those of p's format.
template <typename Product>
void run_format(const PanelProduct& p) {
  const bool has_min = p.format->has_min;
  const bool two_level = p.format->two_level;
  switch (p.format->bits) {
    case 2:
      return Product::template run<2, 16, true, true>(p);
    case 3:
      return Product::template run<3, 16, false, true>(p);
    case 4:
      if (two_level) return Product::template run<4, 32, true, true>(p);
      if (has_min) return Product::template run<4, 32, true, false>(p);
      return Product::template run<4, 32, false, false>(p);
    case 5:
      if (two_level) return Product::template run<5, 32, true, true>(p);
      if (has_min) return Product::template run<5, 32, true, false>(p);
      return Product::template run<5, 32, false, false>(p);
    case 6:
      return Product::template run<6, 16, false, true>(p);
    default:
      return Product::template run<8, 32, false, false>(p);
  }
}

}  // namespace ikv
