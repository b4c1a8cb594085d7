#include "kv/key_codebook_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

namespace ikv {

namespace {

using Point = std::array<float, kKeySubDim>;
using Centroids = std::array<Point, kKeyCentroids>;

/// Splitmix64 (Steele, Lea, Flood 2014): unlike std distributions the same on every platform.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t state_;
};

float distance(const Point& a, const Point& b) {
  float sum = 0.0f;
  for (int d = 0; d < kKeySubDim; ++d) sum += (a[d] - b[d]) * (a[d] - b[d]);
  return sum;
}

/// k-means++ (Arthur, Vassilvitskii 2007): each next centroid drawn by squared distance.
Centroids seed_centroids(const std::vector<Point>& points, Random& random) {
  Centroids centroids;
  centroids[0] = points[random.next() % points.size()];
  std::vector<float> nearest(points.size(), std::numeric_limits<float>::max());
  for (int c = 1; c < kKeyCentroids; ++c) {
    double total = 0.0;
    for (size_t i = 0; i < points.size(); ++i) {
      nearest[i] = std::min(nearest[i], distance(points[i], centroids[c - 1]));
      total += static_cast<double>(nearest[i]);
    }
    double left = random.unit() * total;
    size_t pick = points.size() - 1;
    for (size_t i = 0; i < points.size(); ++i) {
      left -= static_cast<double>(nearest[i]);
      if (left < 0.0) {
        pick = i;
        break;
      }
    }
    centroids[c] = points[pick];
  }
  return centroids;
}

/// Index of the nearest centroid. Channel-major copies let the compiler do all 16 at once.
int assign(const Point& p, const float (&by_channel)[kKeySubDim][kKeyCentroids], float* best) {
  float distances[kKeyCentroids] = {};
  for (int d = 0; d < kKeySubDim; ++d) {
    for (int c = 0; c < kKeyCentroids; ++c) {
      const float delta = p[d] - by_channel[d][c];
      distances[c] += delta * delta;
    }
  }
  int index = 0;
  for (int c = 1; c < kKeyCentroids; ++c) {
    if (distances[c] < distances[index]) index = c;
  }
  *best = distances[index];
  return index;
}

Centroids k_means(const std::vector<Point>& points, Random& random, int iterations) {
  Centroids centroids = seed_centroids(points, random);
  std::vector<uint8_t> owner(points.size(), 255);
  for (int iteration = 0; iteration < iterations; ++iteration) {
    float by_channel[kKeySubDim][kKeyCentroids];
    for (int c = 0; c < kKeyCentroids; ++c) {
      for (int d = 0; d < kKeySubDim; ++d) by_channel[d][c] = centroids[c][d];
    }
    std::array<std::array<double, kKeySubDim>, kKeyCentroids> sums{};
    std::array<size_t, kKeyCentroids> counts{};
    size_t farthest = 0;
    float farthest_distance = -1.0f;
    bool changed = false;
    for (size_t i = 0; i < points.size(); ++i) {
      float d2;
      const int c = assign(points[i], by_channel, &d2);
      changed = changed || owner[i] != c;
      owner[i] = static_cast<uint8_t>(c);
      ++counts[c];
      for (int d = 0; d < kKeySubDim; ++d) sums[c][d] += static_cast<double>(points[i][d]);
      if (d2 > farthest_distance) {
        farthest = i;
        farthest_distance = d2;
      }
    }
    if (!changed) break;
    for (int c = 0; c < kKeyCentroids; ++c) {
      if (counts[c] == 0) {
        // One empty cluster an iteration moves to the worst-served point; the others wait.
        if (farthest_distance > 0.0f) centroids[c] = points[farthest];
        farthest_distance = -1.0f;
        continue;
      }
      for (int d = 0; d < kKeySubDim; ++d) {
        centroids[c][d] = static_cast<float>(sums[c][d] / static_cast<double>(counts[c]));
      }
    }
  }
  return centroids;
}

Centroids sign_centroids(const std::vector<Point>& points) {
  std::array<double, kKeySubDim> mean{}, deviation{};
  const double n = static_cast<double>(points.size());
  for (const Point& p : points) {
    for (int d = 0; d < kKeySubDim; ++d) mean[d] += static_cast<double>(p[d]) / n;
  }
  for (const Point& p : points) {
    for (int d = 0; d < kKeySubDim; ++d) {
      deviation[d] += std::abs(static_cast<double>(p[d]) - mean[d]) / n;
    }
  }
  Centroids centroids;
  for (int c = 0; c < kKeyCentroids; ++c) {
    for (int d = 0; d < kKeySubDim; ++d) {
      centroids[c][d] =
          static_cast<float>((c >> d & 1) != 0 ? mean[d] + deviation[d] : mean[d] - deviation[d]);
    }
  }
  return centroids;
}

}  // namespace

std::vector<float> fit_head_codebook(KeyCodeKind kind, const float* samples, size_t num_samples,
                                     size_t stride, int head_dim, uint64_t seed, int iterations) {
  std::vector<float> out(static_cast<size_t>(head_dim) * kKeyCentroids, 0.0f);
  std::vector<Point> points;
  for (int m = 0; m < head_dim / kKeySubDim; ++m) {
    points.clear();
    for (size_t i = 0; i < num_samples; ++i) {
      Point p;
      std::copy_n(samples + i * stride + m * kKeySubDim, kKeySubDim, p.begin());
      if (std::all_of(p.begin(), p.end(), [](float x) { return std::isfinite(x); })) {
        points.push_back(p);
      }
    }
    if (points.empty()) continue;
    Random random(seed + 0x632BE59BD9B4E019ull * static_cast<uint64_t>(m + 1));
    const Centroids centroids =
        kind == KeyCodeKind::kSign ? sign_centroids(points) : k_means(points, random, iterations);
    for (int d = 0; d < kKeySubDim; ++d) {
      for (int c = 0; c < kKeyCentroids; ++c) {
        out[static_cast<size_t>(m * kKeySubDim + d) * kKeyCentroids + c] = centroids[c][d];
      }
    }
  }
  return out;
}

KeySampler::KeySampler(std::vector<KvLayerShape> layers, size_t max_samples, uint64_t seed)
    : layers_(std::move(layers)), max_samples_(max_samples) {
  for (const KvLayerShape& layer : layers_) {
    first_head_.push_back(heads_.size());
    for (int h = 0; h < layer.num_kv_heads; ++h) {
      heads_.push_back({{}, 0, seed + 0x9E3779B97F4A7C15ull * (heads_.size() + 1)});
    }
  }
}

void KeySampler::add(int layer, int kv_head, const float* key) {
  const auto head_dim = static_cast<size_t>(layers_[layer].head_dim);
  Head& head = heads_[first_head_[layer] + static_cast<size_t>(kv_head)];
  ++head.num_offered;
  if (head.num_offered <= max_samples_) {
    head.keys.insert(head.keys.end(), key, key + head_dim);
    return;
  }
  Random random(head.random_state);
  const uint64_t place = random.next() % head.num_offered;
  head.random_state += 0x9E3779B97F4A7C15ull;  // one draw of the generator
  if (place < max_samples_) std::copy_n(key, head_dim, head.keys.begin() + place * head_dim);
}

const std::vector<float>& KeySampler::samples(int layer, int kv_head) const {
  return heads_[first_head_[layer] + static_cast<size_t>(kv_head)].keys;
}

size_t KeySampler::num_samples(int layer, int kv_head) const {
  return samples(layer, kv_head).size() / static_cast<size_t>(layers_[layer].head_dim);
}

Result<KeyCodebooks> fit_codebooks(KeyCodeKind kind, const KeySampler& sampler, uint64_t seed,
                                   ThreadPool& threads,
                                   const std::function<void(size_t, size_t)>& progress,
                                   const std::vector<KeyTransform>& transforms) {
  IKV_ASSIGN_OR_RETURN(KeyCodebooks books, KeyCodebooks::create(kind, sampler.layers()));
  std::vector<std::pair<int, int>> heads;
  for (size_t l = 0; l < sampler.layers().size(); ++l) {
    for (int h = 0; h < sampler.layers()[l].num_kv_heads; ++h) {
      heads.emplace_back(static_cast<int>(l), h);
      if (sampler.num_samples(static_cast<int>(l), h) < kKeyCentroids) {
        return invalid_argument("layer " + std::to_string(l) + ", KV head " + std::to_string(h) +
                                ": fewer than 16 sample keys; use a longer calibration text");
      }
    }
  }
  std::vector<KeyTransform> used = transforms;
  if (used.empty()) {
    for (const auto& [layer, kv_head] : heads) {
      used.push_back(identity_transform(sampler.layers()[layer].head_dim));
    }
  }
  if (used.size() != heads.size()) return invalid_argument("key codes: one transform a head");
  for (size_t i = 0; i < heads.size(); ++i) {
    if (!is_valid_transform(used[i], sampler.layers()[heads[i].first].head_dim)) {
      return invalid_argument("layer " + std::to_string(heads[i].first) + ", KV head " +
                              std::to_string(heads[i].second) + ": the key transform is not valid");
    }
  }
  std::mutex mutex;
  size_t num_done = 0;
  threads.parallel_for(heads.size(), [&](size_t i, int) {
    const auto [layer, kv_head] = heads[i];
    const auto head_dim = static_cast<size_t>(sampler.layers()[layer].head_dim);
    const std::vector<float>& raw = sampler.samples(layer, kv_head);
    std::vector<float> keys(raw.size());
    for (size_t at = 0; at < raw.size(); at += head_dim) {
      for (size_t c = 0; c < head_dim; ++c) {
        keys[at + c] = raw[at + used[i].channel[c]] * used[i].scale[c];
      }
    }
    const std::vector<float> centroids =
        fit_head_codebook(kind, keys.data(), sampler.num_samples(layer, kv_head), head_dim,
                          static_cast<int>(head_dim), seed + i * 0xD1B54A32D192ED03ull);
    std::lock_guard lock(mutex);
    books.set_head(layer, kv_head, centroids, used[i]);
    ++num_done;
    if (progress) progress(num_done, heads.size());
  });
  return books;
}

}  // namespace ikv
