// A head's transform as its codebook stores it, for the kernels of key codes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace ikv {

/// Largest head size of key codes.
inline constexpr int kMaxKeyHeadDim = 512;

/// Reads the transform at the end of KeyCodebooks::head().
struct TransformView {
  TransformView(std::span<const float> book, int head_dim);

  /// out[c] = key[channel[c]] * scale[c].
  void apply_to_key(const float* key, float* out) const;

  uint16_t channel[kMaxKeyHeadDim];
  const float* scale;
  size_t size;
};

}  // namespace ikv
