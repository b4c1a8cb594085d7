#include "relevance/incremental.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "core/dot.h"

namespace ikv {
namespace {

// Float sums of a score are off by far less than this share of it.
constexpr float kScoreRounding = 2e-5f;
// And normalised masses by less than this share.
constexpr float kMassRounding = 1e-4f;

float distance(const float* a, const float* b, size_t size) {
  float sum = 0.0f;
  for (size_t i = 0; i < size; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

std::vector<float> mean_row(const std::vector<float>& rows, size_t width) {
  std::vector<double> sums(width, 0.0);
  for (size_t i = 0; i < rows.size(); ++i) sums[i % width] += static_cast<double>(rows[i]);
  const size_t num_rows = std::max(rows.size() / width, size_t{1});
  std::vector<float> mean(width);
  for (size_t c = 0; c < width; ++c) {
    mean[c] = static_cast<float>(sums[c] / static_cast<double>(num_rows));
  }
  return mean;
}

// Bounds of one row's softmax when each score may be off by its bound.
void row_interval(const float* score, const float* bound, size_t num_pages, float* low,
                  float* high) {
  float max = -INFINITY;
  for (size_t i = 0; i < num_pages; ++i) max = std::max(max, score[i] + bound[i]);
  double sum_low = 0.0;
  double sum_high = 0.0;
  for (size_t i = 0; i < num_pages; ++i) {
    low[i] = std::exp(score[i] - bound[i] - max);
    high[i] = std::exp(score[i] + bound[i] - max);
    sum_low += static_cast<double>(low[i]);
    sum_high += static_cast<double>(high[i]);
  }
  for (size_t i = 0; i < num_pages; ++i) {
    const double l = static_cast<double>(low[i]);
    const double h = static_cast<double>(high[i]);
    const double least = l + std::max(0.0, sum_high - h);
    const double most = h + std::max(0.0, sum_low - l);
    low[i] = least > 0.0 ? static_cast<float>(l / least) : 0.0f;
    high[i] = most > 0.0 ? static_cast<float>(h / most) : 1.0f;
  }
}

// The value at place `rank` (0: the greatest) of `values`.
float ranked(std::vector<float> values, size_t rank) {
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(rank), values.end(),
                   std::greater<>());
  return values[rank];
}

}  // namespace

Result<IncrementalTopPages> IncrementalTopPages::create(ScorerKind kind, GroupReduce reduce,
                                                        const PageData& data,
                                                        const QueryGroup& group) {
  if (!has_centre_radius(kind)) {
    return unsupported("relevance: scorer '" + std::string(scorer_name(kind)) +
                       "' has no bound for incremental scoring; cosine, dot, minmax, box have");
  }
  IKV_RETURN_IF_ERROR(check_page_data(data, group));
  IncrementalTopPages top;
  IKV_ASSIGN_OR_RETURN(top.shape_, make_centre_radius(kind, data));
  for (const std::vector<float>* values : {&top.shape_.centre, &top.shape_.radius}) {
    if (!std::all_of(values->begin(), values->end(), [](float x) { return std::isfinite(x); })) {
      return invalid_argument("relevance: pages' digests must be finite for incremental scoring");
    }
  }
  const size_t width = static_cast<size_t>(data.head_dim);
  top.reduce_ = reduce;
  top.mean_centre_ = mean_row(top.shape_.centre, width);
  top.mean_radius_ = mean_row(top.shape_.radius, width);
  for (size_t page = 0; page < data.num_pages(); ++page) {
    float spread =
        distance(top.shape_.centre.data() + page * width, top.mean_centre_.data(), width);
    if (!top.shape_.radius.empty()) {
      spread += distance(top.shape_.radius.data() + page * width, top.mean_radius_.data(), width);
    }
    top.spread_.push_back(spread);
  }
  top.group_size_ = group.group_size;
  top.num_queries_ = group.num_queries;
  top.scale_ = group.scale;
  top.queries_.assign(group.queries.begin(), group.queries.end());
  top.score_.resize(group.num_rows() * data.num_pages());
  top.bound_.assign(top.score_.size(), INFINITY);
  for (size_t page = 0; page < data.num_pages(); ++page) top.rescore(group, page);
  return top;
}

// Computes the page's scores that are not exact; how many they were.
size_t IncrementalTopPages::rescore(const QueryGroup& group, size_t page) {
  size_t count = 0;
  for (size_t row = 0; row < group.num_rows(); ++row) {
    const size_t at = row * num_pages() + page;
    if (bound_[at] == 0.0f) continue;
    score_[at] = shape_.score(group.row(row), scale_, page);
    bound_[at] = 0.0f;
    ++count;
  }
  return count;
}

bool IncrementalTopPages::is_exact(size_t page) const {
  for (size_t i = page; i < bound_.size(); i += num_pages()) {
    if (bound_[i] > 0.0f) return false;
  }
  return true;
}

// Adds to scores and bounds what the step from the last queries to these does.
void IncrementalTopPages::move_queries(const QueryGroup& group) {
  const size_t width = static_cast<size_t>(shape_.head_dim);
  for (size_t row = 0; row < group.num_rows(); ++row) {
    const float* before = queries_.data() + row * width;
    const float* after = group.row(row);
    const float step = distance(before, after, width);
    if (step == 0.0f) continue;
    float shift = 0.0f;
    for (size_t c = 0; c < width; ++c) {
      shift += (after[c] - before[c]) * mean_centre_[c];
      if (!shape_.radius.empty()) {
        shift += (std::abs(after[c]) - std::abs(before[c])) * mean_radius_[c];
      }
    }
    for (size_t page = 0; page < num_pages(); ++page) {
      float& score = score_[row * num_pages() + page];
      score += scale_ * shift;
      bound_[row * num_pages() + page] +=
          std::abs(scale_) * step * spread_[page] + kScoreRounding * (1.0f + std::abs(score));
    }
  }
  queries_.assign(group.queries.begin(), group.queries.end());
}

IncrementalTopPages::Interval IncrementalTopPages::mass_interval(const QueryGroup& group) const {
  const size_t n = num_pages();
  std::vector<float> weights(group.weights.begin(), group.weights.end());
  float total = std::accumulate(weights.begin(), weights.end(), 0.0f);
  if (!(total > 0.0f)) {
    weights.assign(static_cast<size_t>(num_queries_), 1.0f);
    total = static_cast<float>(num_queries_);
  }
  const size_t heads = static_cast<size_t>(group_size_);
  Interval interval{std::vector<float>(n, 0.0f), std::vector<float>(n, 0.0f)};
  std::vector<float> low(n), high(n), head_low(n), head_high(n);
  for (size_t head = 0; head < heads; ++head) {
    std::fill(head_low.begin(), head_low.end(), 0.0f);
    std::fill(head_high.begin(), head_high.end(), 0.0f);
    for (size_t query = 0; query < weights.size(); ++query) {
      const size_t begin = (query * heads + head) * n;
      row_interval(score_.data() + begin, bound_.data() + begin, n, low.data(), high.data());
      for (size_t i = 0; i < n; ++i) {
        head_low[i] += weights[query] / total * low[i];
        head_high[i] += weights[query] / total * high[i];
      }
    }
    for (size_t i = 0; i < n; ++i) {
      if (reduce_ == GroupReduce::kMax) {
        interval.low[i] = std::max(interval.low[i], head_low[i]);
        interval.high[i] = std::max(interval.high[i], head_high[i]);
      } else {
        interval.low[i] += head_low[i] / static_cast<float>(heads);
        interval.high[i] += head_high[i] / static_cast<float>(heads);
      }
    }
  }
  for (size_t i = 0; i < n; ++i) {
    interval.low[i] *= 1.0f - kMassRounding;
    interval.high[i] *= 1.0f + kMassRounding;
  }
  return interval;
}

// Scores pages again whose side of the border is open; the number of scores, 0 when all is decided.
size_t IncrementalTopPages::rescore_undecided(const QueryGroup& group, const Interval& interval,
                                              size_t k) {
  const size_t n = num_pages();
  const float surely_in = ranked(interval.high, k);      // above: fewer than k can be greater
  const float surely_out = ranked(interval.low, k - 1);  // below: k are greater
  std::vector<size_t> open;
  bool undecided = false;
  for (size_t page = 0; page < n; ++page) {
    if (interval.low[page] > surely_in || interval.high[page] < surely_out) continue;
    undecided = true;
    if (!is_exact(page)) open.push_back(page);
  }
  if (!undecided) return 0;
  if (open.empty()) {
    // Only the sums over all pages are uncertain: score what adds most to that.
    for (size_t page = 0; page < n; ++page) {
      if (!is_exact(page)) open.push_back(page);
    }
    const auto width = [&](size_t page) { return interval.high[page] - interval.low[page]; };
    std::sort(open.begin(), open.end(), [&](size_t a, size_t b) { return width(a) > width(b); });
    float total = 0.0f;
    for (const size_t page : open) total += width(page);
    // Half of the uncertainty a round: with the few massive pages of a real head that is little.
    size_t count = 0;
    for (float sum = 0.0f; count < open.size() && sum <= 0.5f * total; ++count) {
      sum += width(open[count]);
    }
    open.resize(count);
  }
  size_t count = 0;
  for (const size_t page : open) count += rescore(group, page);
  return count;
}

Result<std::vector<int32_t>> IncrementalTopPages::top_pages(const QueryGroup& group, size_t k) {
  if (group.group_size != group_size_ || group.num_queries != num_queries_ ||
      group.head_dim != shape_.head_dim || group.scale != scale_ ||
      group.queries.size() != queries_.size() ||
      (!group.weights.empty() && group.weights.size() != static_cast<size_t>(num_queries_))) {
    return invalid_argument(
        "relevance: incremental scoring needs queries of the shape and scale it began with");
  }
  move_queries(group);
  last_rescored_ = 0;
  const size_t n = num_pages();
  k = std::min(k, n);
  std::vector<float> order(n);
  if (k > 0 && k < n) {
    while (true) {
      const Interval interval = mass_interval(group);
      const size_t scored = rescore_undecided(group, interval, k);
      last_rescored_ += scored;
      order = interval.low;
      if (scored == 0) break;
    }
    // All exact: the border may still be within rounding, so compare as a full score does.
    bool all_exact = true;
    for (size_t page = 0; page < n && all_exact; ++page) all_exact = is_exact(page);
    if (all_exact) reduce_to_mass(score_, group, n, reduce_, order);
  }
  total_rescored_ += last_rescored_;
  std::vector<int32_t> pages(n);
  std::iota(pages.begin(), pages.end(), 0);
  std::sort(pages.begin(), pages.end(), [&](int32_t a, int32_t b) {
    const float x = order[static_cast<size_t>(a)];
    const float y = order[static_cast<size_t>(b)];
    return x > y || (x == y && a > b);
  });
  pages.resize(k);
  std::sort(pages.begin(), pages.end());
  return pages;
}

}  // namespace ikv
