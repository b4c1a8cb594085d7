#include "attention/paged_attention_reference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "quant/kv_codec.h"

namespace ikv {
namespace {

// One key that the query reads.
struct Key {
  size_t page = 0;
  std::vector<float> k, v;
};

bool listed(const DecodeJob& job, size_t page, int row, int block_tokens) {
  if (job.all_entries) return true;
  const auto entry = static_cast<PageEntry>(page * static_cast<size_t>(block_tokens)) +
                     static_cast<PageEntry>(row);
  return std::find(job.entries.begin(), job.entries.end(), entry) != job.entries.end();
}

std::vector<Key> readable_keys(const AttentionSpec& spec, const DecodeJob& job) {
  std::vector<Key> keys;
  const auto dim = static_cast<size_t>(spec.head_dim);
  for (size_t p = 0; p < job.pages.size(); ++p) {
    const KvPageView& page = job.pages[p];
    if (page.data == nullptr) continue;
    for (int row = 0; row < page.num_tokens; ++row) {
      const int64_t position = static_cast<int64_t>(page.begin) + row;
      const int64_t stands_at = position + page.position_shift;
      if (position > job.position) continue;
      if (spec.window_tokens > 0 && stands_at <= job.position - spec.window_tokens) continue;
      if (!listed(job, p, row, page.layout->block_tokens)) continue;
      Key key{p, std::vector<float>(dim), std::vector<float>(dim)};
      read_kv_rows(*page.layout, page.data, row, 1, key.k.data(), key.v.data(), dim);
      keys.push_back(std::move(key));
    }
  }
  return keys;
}

// The query as keys of a page with this shift meet it: turned back by the shift.
std::vector<double> rotated_query(const AttentionSpec& spec, const float* q, int shift) {
  std::vector<double> out(q, q + spec.head_dim);
  if (shift == 0 || spec.rope == nullptr) return out;
  const auto half = static_cast<size_t>(spec.rope->num_dims / 2);
  const bool interleaved = spec.rope->pairs == RopePairs::kInterleaved;
  for (size_t i = 0; i < half; ++i) {
    const double angle =
        -static_cast<double>(shift) * static_cast<double>(spec.rope->inverse_freq[i]);
    double& a = out[interleaved ? 2 * i : i];
    double& b = out[interleaved ? 2 * i + 1 : i + half];
    const double x = a, y = b;
    a = x * std::cos(angle) - y * std::sin(angle);
    b = x * std::sin(angle) + y * std::cos(angle);
  }
  return out;
}

double logit(const AttentionSpec& spec, const std::vector<double>& q, const std::vector<float>& k) {
  double sum = 0.0;
  for (size_t d = 0; d < k.size(); ++d) sum += q[d] * static_cast<double>(k[d]);
  sum *= static_cast<double>(spec.scale);
  const double cap = static_cast<double>(spec.logit_softcap);
  return cap > 0.0 ? cap * std::tanh(sum / cap) : sum;
}

void attend_head(const AttentionSpec& spec, const DecodeJob& job, const std::vector<Key>& keys,
                 const float* q, float* out) {
  std::fill(out, out + spec.head_dim, 0.0f);
  std::vector<double> weights;
  double most = -INFINITY, total = 0.0;
  for (const Key& key : keys) {
    weights.push_back(
        logit(spec, rotated_query(spec, q, job.pages[key.page].position_shift), key.k));
    most = std::max(most, weights.back());
  }
  for (double& weight : weights) total += weight = std::exp(weight - most);
  std::vector<double> sums(static_cast<size_t>(spec.head_dim), 0.0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const double weight = weights[i] / total;
    for (size_t d = 0; d < sums.size(); ++d) sums[d] += weight * static_cast<double>(keys[i].v[d]);
    if (job.page_mass != nullptr) job.page_mass[keys[i].page] += static_cast<float>(weight);
  }
  for (size_t d = 0; d < sums.size(); ++d) out[d] = static_cast<float>(sums[d]);
}

}  // namespace

void attend_decode_reference(const AttentionSpec& spec, const DecodeJob& job) {
  const std::vector<Key> keys = readable_keys(spec, job);
  if (job.page_mass != nullptr) std::fill_n(job.page_mass, job.pages.size(), 0.0f);
  for (int g = 0; g < spec.num_heads / spec.num_kv_heads; ++g) {
    const ptrdiff_t offset = static_cast<ptrdiff_t>(g) * spec.head_dim;
    attend_head(spec, job, keys, job.q + offset, job.out + offset);
  }
}

void attend_prefill_reference(const AttentionSpec& spec, const PrefillJob& job) {
  std::vector<KvPageView> pages(job.pages.begin(), job.pages.end());
  pages.push_back(job.own);
  std::vector<float> mass(pages.size());
  if (job.page_mass != nullptr) std::fill_n(job.page_mass, pages.size(), 0.0f);
  for (int row = 0; row < job.num_rows; ++row) {
    DecodeJob one;
    one.q = job.q + static_cast<size_t>(row) * job.q_stride;
    one.out = job.out + static_cast<size_t>(row) * job.out_stride;
    one.position = job.first_position + row;
    one.pages = pages;
    if (job.page_mass != nullptr && row >= job.mass_first_row) one.page_mass = mass.data();
    attend_decode_reference(spec, one);
    if (one.page_mass == nullptr) continue;
    for (size_t p = 0; p < pages.size(); ++p) job.page_mass[p] += mass[p];
  }
}

}  // namespace ikv
