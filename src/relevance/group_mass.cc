#include "relevance/group_mass.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace ikv {
namespace {

// softmax of one row into `out`.
void normalise_row(const float* log_mass, size_t num_pages, float* out) {
  const float max = *std::max_element(log_mass, log_mass + num_pages);
  if (!std::isfinite(max)) {
    // All -infinity, or some +infinity: those alike, the others none.
    size_t count = 0;
    for (size_t i = 0; i < num_pages; ++i) count += log_mass[i] == max ? 1 : 0;
    for (size_t i = 0; i < num_pages; ++i) {
      out[i] = log_mass[i] == max ? 1.0f / static_cast<float>(count) : 0.0f;
    }
    return;
  }
  double total = 0.0;
  for (size_t i = 0; i < num_pages; ++i) {
    out[i] = std::exp(log_mass[i] - max);
    total += static_cast<double>(out[i]);
  }
  const float inverse = static_cast<float>(1.0 / total);
  for (size_t i = 0; i < num_pages; ++i) out[i] *= inverse;
}

std::vector<float> query_weights(const QueryGroup& group) {
  std::vector<float> weights(group.weights.begin(), group.weights.end());
  double total = 0.0;
  for (const float weight : weights) total += static_cast<double>(weight);
  if (total <= 0.0) {
    weights.assign(static_cast<size_t>(group.num_queries), 1.0f);
    total = static_cast<double>(group.num_queries);
  }
  for (float& weight : weights) weight = static_cast<float>(static_cast<double>(weight) / total);
  return weights;
}

void join(const float* values, size_t count, GroupReduce reduce, size_t num_joined, float* into) {
  for (size_t i = 0; i < count; ++i) {
    into[i] = reduce == GroupReduce::kMax ? std::max(into[i], values[i])
                                          : into[i] + values[i] / static_cast<float>(num_joined);
  }
}

// Indices of the `count` greatest, ascending. Ties go to the later page, as in run_policy().
std::vector<size_t> best_pages(std::span<const float> mass, size_t count) {
  std::vector<size_t> best(mass.size());
  std::iota(best.begin(), best.end(), size_t{0});
  std::nth_element(
      best.begin(), best.begin() + static_cast<ptrdiff_t>(count - 1), best.end(),
      [&](size_t a, size_t b) { return mass[a] > mass[b] || (mass[a] == mass[b] && a > b); });
  best.resize(count);
  std::sort(best.begin(), best.end());
  return best;
}

// Puts the fine scores of the pages `best` into a row of coarse ones, after moving the others.
void blend_row(const std::vector<size_t>& best, const float* fine, std::span<float> row) {
  double shift = 0.0;
  size_t num_finite = 0;
  for (size_t i = 0; i < best.size(); ++i) {
    const double difference = static_cast<double>(fine[i]) - static_cast<double>(row[best[i]]);
    if (!std::isfinite(difference)) continue;
    shift += difference;
    ++num_finite;
  }
  if (num_finite > 0) shift /= static_cast<double>(num_finite);
  const float least = *std::min_element(fine, fine + best.size());
  for (float& score : row) score = std::min(score + static_cast<float>(shift), least);
  for (size_t i = 0; i < best.size(); ++i) row[best[i]] = fine[i];
}

}  // namespace

void reduce_to_mass(std::span<const float> log_mass, const QueryGroup& group, size_t num_pages,
                    GroupReduce reduce, std::span<float> mass) {
  std::fill(mass.begin(), mass.end(), 0.0f);
  if (num_pages == 0) return;
  const std::vector<float> weights = query_weights(group);
  const size_t heads = static_cast<size_t>(group.group_size);
  std::vector<float> row(num_pages), head_mass(num_pages);
  for (size_t head = 0; head < heads; ++head) {
    std::fill(head_mass.begin(), head_mass.end(), 0.0f);
    for (size_t query = 0; query < weights.size(); ++query) {
      if (weights[query] == 0.0f) continue;
      normalise_row(log_mass.data() + (query * heads + head) * num_pages, num_pages, row.data());
      for (size_t i = 0; i < num_pages; ++i) head_mass[i] += weights[query] * row[i];
    }
    join(head_mass.data(), num_pages, reduce, heads, mass.data());
  }
}

Status score_one_stage(const PageScorer& scorer, const PageData& data, const QueryGroup& group,
                       std::span<const int32_t> pages, GroupReduce reduce, std::span<float> mass) {
  std::vector<float> log_mass(group.num_rows() * pages.size());
  IKV_RETURN_IF_ERROR(scorer.score(data, group, pages, log_mass));
  if (mass.size() != pages.size()) return invalid_argument("relevance: one mass for each page");
  reduce_to_mass(log_mass, group, pages.size(), reduce, mass);
  return {};
}

Status score_two_stages(const TwoStageOptions& options, const PageData& data,
                        const QueryGroup& group, std::span<const int32_t> pages,
                        std::span<float> mass, StageCounts& counts) {
  if (!(options.candidate_share >= 0.0f && options.candidate_share <= 1.0f)) {
    return invalid_argument("relevance: the share of candidates must be from 0 to 1");
  }
  const size_t n = pages.size();
  std::vector<float> log_mass(group.num_rows() * n);
  IKV_RETURN_IF_ERROR(
      make_page_scorer(options.coarse, options.seed)->score(data, group, pages, log_mass));
  if (mass.size() != n) return invalid_argument("relevance: one mass for each page");
  reduce_to_mass(log_mass, group, n, options.reduce, mass);
  counts.coarse_pages += static_cast<int64_t>(n);

  // Less a little, so that 0.2f of 40 is 8 and not 9.
  const double share = static_cast<double>(options.candidate_share);
  const size_t wanted =
      static_cast<size_t>(std::max(0.0, std::ceil(share * static_cast<double>(n) - 1e-4)));
  const size_t num_fine =
      std::min(n, std::max(wanted, static_cast<size_t>(std::max(options.min_candidates, 0))));
  if (num_fine == 0) return {};
  const std::vector<size_t> best = best_pages(mass, num_fine);
  std::vector<int32_t> fine_pages;
  for (const size_t i : best) {
    fine_pages.push_back(pages[i]);
    counts.fine_tokens += data.num_tokens[static_cast<size_t>(pages[i])];
  }
  counts.fine_pages += static_cast<int64_t>(num_fine);
  std::vector<float> fine(group.num_rows() * num_fine);
  IKV_RETURN_IF_ERROR(
      make_page_scorer(options.fine, options.seed)->score(data, group, fine_pages, fine));
  for (size_t row = 0; row < group.num_rows(); ++row) {
    blend_row(best, fine.data() + row * num_fine, {log_mass.data() + row * n, n});
  }
  reduce_to_mass(log_mass, group, n, options.reduce, mass);
  return {};
}

Result<PageMass> share_mass(std::vector<float> mass, std::span<const int> kv_heads,
                            size_t num_pages, PageSharing sharing, GroupReduce reduce) {
  const size_t num_heads =
      static_cast<size_t>(std::accumulate(kv_heads.begin(), kv_heads.end(), 0));
  if (mass.size() != num_heads * num_pages) {
    return invalid_argument("relevance: " + std::to_string(mass.size()) + " masses for " +
                            std::to_string(num_heads) + " KV heads and " +
                            std::to_string(num_pages) + " pages");
  }
  PageMass result;
  result.sharing = sharing;
  result.num_pages = num_pages;
  result.kv_heads.assign(kv_heads.begin(), kv_heads.end());
  if (sharing == PageSharing::kPerHead) {
    result.values = std::move(mass);
    return result;
  }
  const size_t num_layers = kv_heads.size();
  std::vector<float> layers(num_layers * num_pages, 0.0f);
  const float* head = mass.data();
  for (size_t l = 0; l < num_layers; ++l) {
    for (int h = 0; h < kv_heads[l]; ++h, head += num_pages) {
      join(head, num_pages, reduce, static_cast<size_t>(kv_heads[l]),
           layers.data() + l * num_pages);
    }
  }
  if (sharing == PageSharing::kPerLayer) {
    result.values = std::move(layers);
    return result;
  }
  result.values.assign(num_pages, 0.0f);
  for (size_t l = 0; l < num_layers; ++l) {
    join(layers.data() + l * num_pages, num_pages, GroupReduce::kMean, num_layers,
         result.values.data());
  }
  return result;
}

}  // namespace ikv
