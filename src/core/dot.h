// Dot product of short float rows, away from the kernels.
#pragma once

#include <array>
#include <cstddef>

namespace ikv {

/// Sum of a[i] * b[i] in a fixed order: sixteen partial sums, which compilers turn into vectors.
inline float dot_product(const float* a, const float* b, size_t size) {
  std::array<float, 16> sums{};
  size_t i = 0;
  for (; i + sums.size() <= size; i += sums.size()) {
    for (size_t j = 0; j < sums.size(); ++j) sums[j] += a[i + j] * b[i + j];
  }
  float total = 0.0f;
  for (const float sum : sums) total += sum;
  for (; i < size; ++i) total += a[i] * b[i];
  return total;
}

}  // namespace ikv
