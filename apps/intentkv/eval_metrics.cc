#include "eval_metrics.h"

#include <algorithm>
#include <cmath>
#include <random>

namespace ikv {
namespace {

double log_sum_exp(std::span<const float> logits) {
  const float highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += static_cast<double>(std::exp(x - highest));
  return highest + std::log(sum);
}

double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace

TokenDifference compare_logits(std::span<const float> full, std::span<const float> candidate,
                               int32_t actual) {
  TokenDifference result;
  const double lse_full = log_sum_exp(full);
  const double lse_candidate = log_sum_exp(candidate);
  double kl = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    const double log_p = full[i] - lse_full;
    if (log_p < -60) continue;  // its share is below the sum's own rounding
    const double log_q = candidate[i] - lse_candidate;
    kl += std::exp(log_p) * (log_p - log_q);
  }
  result.kl = std::max(0.0, kl);
  const auto token = static_cast<size_t>(actual);
  result.nll_full = lse_full - full[token];
  result.dnll = (lse_candidate - candidate[token]) - result.nll_full;
  result.top1 = std::max_element(full.begin(), full.end()) - full.begin() ==
                std::max_element(candidate.begin(), candidate.end()) - candidate.begin();
  return result;
}

Distribution describe(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (const double x : values) sum += x;
  return {sum / static_cast<double>(values.size()), quantile(values, 0.5), quantile(values, 0.95),
          quantile(values, 0.99), values.back()};
}

Interval bootstrap_mean(const std::vector<std::vector<double>>& clusters, int resamples) {
  std::vector<std::pair<double, double>> sums;  // sum and count of each cluster
  for (const auto& cluster : clusters) {
    if (cluster.empty()) continue;
    double sum = 0;
    for (const double x : cluster) sum += x;
    sums.emplace_back(sum, static_cast<double>(cluster.size()));
  }
  if (sums.empty()) return {};
  std::mt19937_64 random(20260101);
  std::vector<double> means;
  for (int i = 0; i < resamples; ++i) {
    double sum = 0;
    double count = 0;
    for (size_t j = 0; j < sums.size(); ++j) {
      const auto& [cluster_sum, cluster_count] = sums[random() % sums.size()];
      sum += cluster_sum;
      count += cluster_count;
    }
    means.push_back(sum / count);
  }
  std::sort(means.begin(), means.end());
  return {quantile(means, 0.025), quantile(means, 0.975)};
}

}  // namespace ikv
