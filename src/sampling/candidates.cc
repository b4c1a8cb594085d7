#include "sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ikv {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
constexpr size_t kBlock = 64;

bool better(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Counting instead of a max or an early exit: a plain integer reduction is what compilers
// vectorise, and a NaN compares false.
bool any_above(const float* x, size_t size, float threshold) {
  int count = 0;
  for (size_t i = 0; i < size; ++i) count += x[i] > threshold ? 1 : 0;
  return count != 0;
}

// exp(logit - max), with +infinity as the largest value rather than inf - inf.
double weight(float logit, float max) {
  return logit == max ? 1.0 : static_cast<double>(std::exp(logit - max));
}

// Length of the shortest prefix with at least `wanted` weight, or size + 1 if it has less.
size_t prefix_with_weight(const std::vector<Candidate>& sorted, double wanted) {
  double sum = 0.0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    sum += weight(sorted[i].logit, sorted[0].logit);
    if (sum >= wanted) return i + 1;
  }
  return sorted.size() + 1;
}

}  // namespace

void select_best(std::span<const float> logits, size_t count, std::vector<Candidate>& out) {
  out.clear();
  if (count == 0) return;
  count = std::min(count, logits.size());
  const size_t room = count + std::max<size_t>(count, kBlock);
  float threshold = kNothing;  // of the worst one kept, once `count` are
  for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
    const size_t end = std::min(begin + kBlock, logits.size());
    if (!any_above(logits.data() + begin, end - begin, threshold)) continue;
    // Ids ascend, so what equals the threshold later loses against what is kept.
    for (size_t i = begin; i < end; ++i) {
      if (logits[i] > threshold) out.push_back({static_cast<TokenId>(i), logits[i]});
    }
    if (out.size() >= room) {
      std::nth_element(out.begin(), out.begin() + static_cast<ptrdiff_t>(count) - 1, out.end(),
                       better);
      out.resize(count);
      threshold = out.back().logit;
    }
  }
  const size_t kept = std::min(count, out.size());
  std::partial_sort(out.begin(), out.begin() + static_cast<ptrdiff_t>(kept), out.end(), better);
  out.resize(kept);
}

void select_all(std::span<const float> logits, std::vector<Candidate>& out) {
  out.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > kNothing) out.push_back({static_cast<TokenId>(i), logits[i]});
  }
}

void keep_nucleus(float mass, std::vector<Candidate>& sorted) {
  if (sorted.empty()) return;
  double total = 0.0;
  for (const Candidate& c : sorted) total += weight(c.logit, sorted[0].logit);
  sorted.resize(std::min(prefix_with_weight(sorted, mass * total), sorted.size()));
}

void select_nucleus(std::span<const float> logits, float mass, std::vector<Candidate>& out) {
  select_best(logits, 1, out);
  if (out.empty()) return;
  const float max = out[0].logit;
  double total = 0.0;
  for (const float logit : logits) {
    if (logit > kNothing) total += weight(logit, max);
  }
  for (size_t count = 256;; count *= 8) {
    select_best(logits, count, out);
    const size_t length = prefix_with_weight(out, mass * total);
    if (length <= out.size()) {
      out.resize(length);
      return;
    }
    if (out.size() < count) return;  // rounding: all of them hold a hair less than `mass`
  }
}

double log_sum_exp(std::span<const float> logits) {
  float max = kNothing;
  for (const float logit : logits) {
    if (logit > max) max = logit;
  }
  if (max == kNothing) return kNothing;
  double total = 0.0;
  for (const float logit : logits) {
    if (logit > kNothing) total += weight(logit, max);
  }
  return static_cast<double>(max) + std::log(total);
}

}  // namespace ikv
