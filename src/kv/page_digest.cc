#include "kv/page_digest.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace ikv {

namespace {
constexpr int kMaxHeadDim = 512;
}

void make_page_digest(const float* keys, size_t stride, int num_tokens, int head_dim,
                      std::byte* digest) {
  IKV_CHECK(num_tokens >= 1 && head_dim <= kMaxHeadDim);
  float mean[kMaxHeadDim] = {}, deviation[kMaxHeadDim] = {};
  const float weight = 1.0f / static_cast<float>(num_tokens);
  for (int t = 0; t < num_tokens; ++t) {
    for (int c = 0; c < head_dim; ++c) mean[c] += keys[static_cast<size_t>(t) * stride + c];
  }
  for (int c = 0; c < head_dim; ++c) mean[c] *= weight;
  // Two passes: keys have channels whose mean is far larger than their spread.
  for (int t = 0; t < num_tokens; ++t) {
    for (int c = 0; c < head_dim; ++c) {
      const float delta = keys[static_cast<size_t>(t) * stride + c] - mean[c];
      deviation[c] += delta * delta;
    }
  }
  float largest_mean = 0.0f, largest_deviation = 0.0f;
  for (int c = 0; c < head_dim; ++c) {
    deviation[c] = std::sqrt(deviation[c] * weight);
    largest_mean = std::max(largest_mean, std::abs(mean[c]));
    largest_deviation = std::max(largest_deviation, deviation[c]);
  }
  const float mean_scale = largest_mean / 127.0f, deviation_scale = largest_deviation / 255.0f;
  const float to_mean = mean_scale > 0.0f ? 1.0f / mean_scale : 0.0f;
  const float to_deviation = deviation_scale > 0.0f ? 1.0f / deviation_scale : 0.0f;
  for (int c = 0; c < head_dim; ++c) {
    const float m = std::clamp(std::nearbyint(mean[c] * to_mean), -127.0f, 127.0f);
    const float s = std::clamp(std::nearbyint(deviation[c] * to_deviation), 0.0f, 255.0f);
    digest[c] = static_cast<std::byte>(static_cast<int8_t>(m));
    digest[head_dim + c] = static_cast<std::byte>(static_cast<uint8_t>(s));
  }
  const auto count = static_cast<uint32_t>(num_tokens);
  std::memcpy(digest + 2 * head_dim, &mean_scale, 4);
  std::memcpy(digest + 2 * head_dim + 4, &deviation_scale, 4);
  std::memcpy(digest + 2 * head_dim + 8, &count, 4);
}

void read_page_digest(const std::byte* digest, int head_dim, PageMoments& moments) {
  float mean_scale, deviation_scale;
  uint32_t count;
  std::memcpy(&mean_scale, digest + 2 * head_dim, 4);
  std::memcpy(&deviation_scale, digest + 2 * head_dim + 4, 4);
  std::memcpy(&count, digest + 2 * head_dim + 8, 4);
  for (int c = 0; c < head_dim; ++c) {
    moments.mean[c] = mean_scale * static_cast<float>(static_cast<int8_t>(digest[c]));
    moments.deviation[c] =
        deviation_scale * static_cast<float>(static_cast<uint8_t>(digest[head_dim + c]));
  }
  moments.num_tokens = static_cast<int>(count);
}

void page_min_max(const float* keys, size_t stride, int num_tokens, int head_dim, float* minimum,
                  float* maximum) {
  IKV_CHECK(num_tokens >= 1);
  std::copy_n(keys, head_dim, minimum);
  std::copy_n(keys, head_dim, maximum);
  for (int t = 1; t < num_tokens; ++t) {
    for (int c = 0; c < head_dim; ++c) {
      const float x = keys[static_cast<size_t>(t) * stride + c];
      minimum[c] = std::min(minimum[c], x);
      maximum[c] = std::max(maximum[c], x);
    }
  }
}

}  // namespace ikv
