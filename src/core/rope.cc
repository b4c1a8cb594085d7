#include "core/rope.h"

#include <cmath>

namespace ikv {

void make_rope_angles(const RopeSpec& rope, int64_t position, RopeAngles& angles) {
  const size_t half = rope.inverse_freq.size();
  angles.cosines.resize(half);
  angles.sines.resize(half);
  const double magnitude = static_cast<double>(rope.magnitude);
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * static_cast<double>(rope.inverse_freq[i]);
    angles.cosines[i] = static_cast<float>(std::cos(angle) * magnitude);
    angles.sines[i] = static_cast<float>(std::sin(angle) * magnitude);
  }
}

void rotate_rope(const RopeSpec& rope, const RopeAngles& angles, int num_heads, int head_dim,
                 float* x) {
  const size_t half = angles.cosines.size();
  const bool interleaved = rope.pairs == RopePairs::kInterleaved;
  const size_t step = interleaved ? 2 : 1;
  const size_t other = interleaved ? 1 : half;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    for (size_t i = 0; i < half; ++i) {
      const float a = x[i * step];
      const float b = x[i * step + other];
      x[i * step] = a * angles.cosines[i] - b * angles.sines[i];
      x[i * step + other] = a * angles.sines[i] + b * angles.cosines[i];
    }
  }
}

}  // namespace ikv
