#include "attention/query_planes.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace ikv {
namespace {

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
  for (size_t s = 0; s < shifts_.size(); ++s) {
    float* rotated = q_.data() + s * queries * dim;
    for (size_t r = 0; r < queries; ++r) std::copy_n(q + r * stride, dim, rotated + r * dim);
    if (shifts_[s] == 0) continue;
    IKV_CHECK(spec.rope != nullptr);  // without rotation no key stands elsewhere
    rotate_by(*spec.rope, -static_cast<int64_t>(shifts_[s]), num_queries, spec.head_dim, rotated);
  }
  quantise(rows, spec.head_dim, spec.scale);
  views_.resize(shifts_.size());
  for (size_t s = 0; s < shifts_.size(); ++s) {
    const size_t row = s * queries;
    QueryView& view = views_[s];
    view = {};
    view.group = num_queries;
    view.head_dim = spec.head_dim;
    view.scale = spec.scale;
    view.q = q_.data() + row * dim;
    if (high_.empty()) continue;
    view.high = high_.data() + row * dim;
    view.low = low_.data() + row * dim;
    view.steps = steps_.data() + row;
    view.bias = bias_.data() + row;
  }
}

void QueryPlanes::quantise(size_t num_rows, int head_dim, float scale) {
  const auto dim = static_cast<size_t>(head_dim);
  const AttentionKernels& kernels = attention_kernels(cpu_isa());
  high_.clear();
  if (kernels.quantise == nullptr) return;
  high_.resize(num_rows * dim);
  low_.resize(num_rows * dim);
  steps_.resize(num_rows);
  bias_.resize(num_rows);
  for (size_t r = 0; r < num_rows; ++r) {
    int32_t sum = 0;
    steps_[r] = scale * kernels.quantise(q_.data() + r * dim, head_dim, high_.data() + r * dim,
                                         low_.data() + r * dim, &sum);
    bias_[r] = 128 * sum;
  }
}

}  // namespace ikv
