// Random pages of keys with their digests, for the tests of this folder.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "relevance/page_data.h"

namespace ikv::testing {

/// Pages whose keys have a common part, a part of the page and noise, as real keys have.
struct TestPages {
  int head_dim;
  std::vector<int32_t> num_tokens;
  std::vector<float> keys;  ///< [token][head_dim]
  std::vector<TokenId> tokens;
  std::vector<float> mean, deviation, absolute, minimum, maximum;

  TestPages(int dim, int num_pages, uint32_t seed, float noise = 1.0f) : head_dim(dim) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> common(static_cast<size_t>(dim));
    for (float& x : common) x = 2.0f * normal(random);
    for (int p = 0; p < num_pages; ++p) {
      num_tokens.push_back(1 + static_cast<int32_t>(random() % 32));
      std::vector<float> own(common);
      for (float& x : own) x += normal(random);
      for (int t = 0; t < num_tokens.back(); ++t) {
        for (const float x : own) keys.push_back(x + noise * normal(random));
        tokens.push_back(static_cast<TokenId>(random() % 50));
      }
    }
    make_digests();
  }

  void make_digests() {
    size_t first = 0;
    const size_t width = static_cast<size_t>(head_dim);
    for (const int32_t count : num_tokens) {
      for (size_t c = 0; c < width; ++c) {
        double sum = 0, squares = 0, absolutes = 0;
        float low = INFINITY, high = -INFINITY;
        for (size_t t = first; t < first + static_cast<size_t>(count); ++t) {
          const float x = keys[t * width + c];
          sum += x;
          low = std::min(low, x);
          high = std::max(high, x);
        }
        const double average = sum / count;
        for (size_t t = first; t < first + static_cast<size_t>(count); ++t) {
          const double d = keys[t * width + c] - average;
          squares += d * d;
          absolutes += std::abs(d);
        }
        mean.push_back(static_cast<float>(average));
        deviation.push_back(static_cast<float>(std::sqrt(squares / count)));
        absolute.push_back(static_cast<float>(absolutes / count));
        minimum.push_back(low);
        maximum.push_back(high);
      }
      first += static_cast<size_t>(count);
    }
  }

  PageData data(const PageTokenLogits* logits = nullptr) const {
    PageData d;
    d.head_dim = head_dim;
    d.num_tokens = num_tokens;
    d.mean = mean;
    d.deviation = deviation;
    d.absolute_deviation = absolute;
    d.minimum = minimum;
    d.maximum = maximum;
    d.tokens = tokens;
    d.code_logits = logits;
    d.key_logits = logits;
    return d;
  }
};

inline std::vector<float> random_queries(size_t count, uint32_t seed, float size = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& x : values) x = size * normal(random);
  return values;
}

inline QueryGroup make_group(const std::vector<float>& queries, int head_dim, int group_size,
                             float scale = 0.2f) {
  QueryGroup group;
  group.head_dim = head_dim;
  group.group_size = group_size;
  group.num_queries = static_cast<int>(queries.size()) / head_dim / group_size;
  group.queries = queries;
  group.scale = scale;
  return group;
}

inline std::vector<int32_t> all_pages(size_t count) {
  std::vector<int32_t> pages;
  for (size_t i = 0; i < count; ++i) pages.push_back(static_cast<int32_t>(i));
  return pages;
}

}  // namespace ikv::testing
