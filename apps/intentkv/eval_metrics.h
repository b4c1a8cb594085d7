// What pruning costs, token by token: divergence of next-token distributions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ikv {

/// One predicted token, full cache against candidate.
struct TokenDifference {
  double kl = 0;        ///< KL(full || candidate) in nats
  double nll_full = 0;  ///< -log p(actual token), full cache
  double dnll = 0;      ///< candidate's NLL minus full's
  bool top1 = false;    ///< both rank the same token first
};

/// Compares two rows of logits of equal size for the token that really came. Natural logarithms,
/// sums in double. Equal rows give exactly 0.
TokenDifference compare_logits(std::span<const float> full, std::span<const float> candidate,
                               int32_t actual);

/// Mean, quantiles and extremes of a sample.
struct Distribution {
  double mean = 0;
  double median = 0;
  double p95 = 0;
  double p99 = 0;
  double max = 0;
};

/// Of any sample; zeros when empty. Quantiles by linear interpolation between order statistics
/// (numpy's default).
Distribution describe(std::vector<double> values);

/// Percentile bootstrap of the mean over clusters (sessions): resamples clusters with replacement,
/// weighs tokens equally. Deterministic. `low`, `high`: 95 % interval.
struct Interval {
  double low = 0;
  double high = 0;
};
Interval bootstrap_mean(const std::vector<std::vector<double>>& clusters, int resamples = 2000);

}  // namespace ikv
