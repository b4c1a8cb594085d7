#include "attention/query_planes.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace ikv {
namespace {

// 127 * 256 + 127: the largest number whose high byte, rounded, is 127.
constexpr float kMaxQ16 = 32639.0f;

// Rotates rows in place by `shift` positions, without RoPE's magnitude: the query has it already.
void rotate_by(const RopeSpec& rope, int64_t shift, int num_rows, int head_dim, float* rows) {
  const int half = rope.num_dims / 2;
  const bool interleaved = rope.pairs == RopePairs::kInterleaved;
  for (int i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(shift) * static_cast<double>(rope.inverse_freq[static_cast<size_t>(i)]);
    const float cosine = static_cast<float>(std::cos(angle));
    const float sine = static_cast<float>(std::sin(angle));
    const int first = interleaved ? 2 * i : i;
    const int second = interleaved ? first + 1 : i + half;
    for (int r = 0; r < num_rows; ++r) {
      float* row = rows + static_cast<ptrdiff_t>(r) * head_dim;
      const float a = row[first], b = row[second];
      row[first] = a * cosine - b * sine;
      row[second] = a * sine + b * cosine;
    }
  }
}

}  // namespace

void QueryPlanes::collect_shifts(std::span<const KvPageView> pages) {
  shifts_.assign(1, 0);
  int32_t last = 0;
  for (const KvPageView& page : pages) {
    if (page.position_shift == last) continue;
    last = page.position_shift;
    if (std::find(shifts_.begin(), shifts_.end(), last) == shifts_.end()) shifts_.push_back(last);
  }
}

void QueryPlanes::prepare(const AttentionSpec& spec, std::span<const KvPageView> pages,
                          const float* q, int num_queries, size_t stride) {
  collect_shifts(pages);
  const auto dim = static_cast<size_t>(spec.head_dim);
  const auto queries = static_cast<size_t>(num_queries);
  const size_t rows = queries * shifts_.size();
  q_.resize(rows * dim);
  q16_.resize(rows * dim);
  high_.resize(rows * dim);
  low_.resize(rows * dim);
  steps_.resize(rows);
  bias_.resize(rows);
  for (size_t s = 0; s < shifts_.size(); ++s) {
    float* rotated = q_.data() + s * queries * dim;
    for (size_t r = 0; r < queries; ++r) std::copy_n(q + r * stride, dim, rotated + r * dim);
    if (shifts_[s] == 0) continue;
    IKV_CHECK(spec.rope != nullptr);  // without rotation no key stands elsewhere
    rotate_by(*spec.rope, -static_cast<int64_t>(shifts_[s]), num_queries, spec.head_dim, rotated);
  }
  quantise(static_cast<int>(rows), spec.head_dim, spec.scale);
  views_.resize(shifts_.size());
  for (size_t s = 0; s < shifts_.size(); ++s) {
    const size_t row = s * queries;
    views_[s] = {num_queries,
                 spec.head_dim,
                 spec.scale,
                 q_.data() + row * dim,
                 q16_.data() + row * dim,
                 high_.data() + row * dim,
                 low_.data() + row * dim,
                 steps_.data() + row,
                 bias_.data() + row};
  }
}

void QueryPlanes::quantise(int num_rows, int head_dim, float scale) {
  const auto dim = static_cast<size_t>(head_dim);
  for (size_t r = 0; r < static_cast<size_t>(num_rows); ++r) {
    const float* q = q_.data() + r * dim;
    float maxima[16] = {};
    for (size_t i = 0; i < dim; i += 16) {
      for (size_t j = 0; j < 16; ++j) maxima[j] = std::max(maxima[j], std::fabs(q[i + j]));
    }
    const float most = *std::max_element(maxima, maxima + 16);
    // A smaller maximum has no finite inverse; such a query scores zero.
    const float inverse = most > 1e-30f ? kMaxQ16 / most : 0.0f;
    steps_[r] = most > 1e-30f ? most / kMaxQ16 * scale : 0.0f;
    int32_t sum = 0;
    for (size_t i = 0; i < dim; ++i) {
      // The float adder rounds to the nearest integer.
      const float magic = 12582912.0f;
      const auto value = static_cast<int32_t>(q[i] * inverse + magic - magic);
      const int32_t high = (value + 128) >> 8;
      q16_[r * dim + i] = static_cast<int16_t>(value);
      high_[r * dim + i] = static_cast<int8_t>(high);
      low_[r * dim + i] = static_cast<int8_t>(value - high * 256);
      sum += value;
    }
    bias_[r] = 128 * sum;
  }
}

}  // namespace ikv
