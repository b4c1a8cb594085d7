#include "engine/rope_rows.h"

#include <cmath>

#include "base/check.h"

namespace ikv {

void RopeRows::begin_step(std::span<const LogicalPos> positions) {
  positions_.assign(positions.begin(), positions.end());
  num_tables_ = 0;
}

const RopeRows::Table* RopeRows::find(const RopeSpec* rope) const {
  for (size_t i = 0; i < num_tables_; ++i) {
    if (tables_[i].rope == rope) return &tables_[i];
  }
  return nullptr;
}

void RopeRows::prepare(const RopeSpec* rope) {
  if (rope == nullptr || find(rope) != nullptr) return;
  if (num_tables_ == tables_.size()) tables_.emplace_back();
  Table& table = tables_[num_tables_++];
  table.rope = rope;
  const size_t half = rope->inverse_freq.size();
  table.cosines.resize(positions_.size() * half);
  table.sines.resize(positions_.size() * half);
  for (size_t row = 0; row < positions_.size(); ++row) {
    for (size_t i = 0; i < half; ++i) {
      // Double: at position 8,000 a float angle is off by 2e-4 in the fastest pair.
      const double angle = static_cast<double>(positions_[row]) * rope->inverse_freq[i];
      table.cosines[row * half + i] = static_cast<float>(std::cos(angle) * rope->magnitude);
      table.sines[row * half + i] = static_cast<float>(std::sin(angle) * rope->magnitude);
    }
  }
}

void RopeRows::rotate(const RopeSpec* rope, size_t row, int num_heads, int head_dim,
                      float* x) const {
  if (rope == nullptr) return;
  const Table* table = find(rope);
  IKV_CHECK(table != nullptr);
  const size_t half = rope->inverse_freq.size();
  const float* cosines = table->cosines.data() + row * half;
  const float* sines = table->sines.data() + row * half;
  for (int head = 0; head < num_heads; ++head, x += head_dim) {
    if (rope->pairs == RopePairs::kInterleaved) {
      for (size_t i = 0; i < half; ++i) {
        const float a = x[2 * i];
        const float b = x[2 * i + 1];
        x[2 * i] = a * cosines[i] - b * sines[i];
        x[2 * i + 1] = a * sines[i] + b * cosines[i];
      }
    } else {
      for (size_t i = 0; i < half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        x[i] = a * cosines[i] - b * sines[i];
        x[i + half] = a * sines[i] + b * cosines[i];
      }
    }
  }
}

}  // namespace ikv
