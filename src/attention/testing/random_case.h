// Random attention problems for property tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "attention/testing/random_cache.h"
#include "quant/kv_codec_testing.h"

namespace ikv::testing {

/// A layer's rules, a page list of mixed formats and the queries of one row.
struct RandomCase {
  explicit RandomCase(uint32_t seed) : cache(0, 0, seed) {
    std::mt19937 random(seed);
    const auto pick = [&random](auto... options) {
      const std::common_type_t<decltype(options)...> all[] = {options...};
      return all[random() % sizeof...(options)];
    };
    spec.head_dim = pick(32, 64, 64, 96, 128, 160, 224, 256, 512);
    const int group = pick(1, 2, 3, 3, 4, 5, 7, 8, 16);
    spec.num_kv_heads = pick(1, 2);
    spec.num_heads = spec.num_kv_heads * group;
    spec.scale = 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
    spec.window_tokens = pick(0, 0, 1, 40, 333);
    spec.logit_softcap = pick(0.0f, 0.0f, 3.0f, 30.0f);
    rope.num_dims = spec.head_dim / pick(1, 2);
    rope.pairs = pick(RopePairs::kInterleaved, RopePairs::kHalves);
    rope.magnitude = 1.3f;  // must not be applied again to a query that has it
    for (int i = 0; i < rope.num_dims / 2; ++i) {
      rope.inverse_freq.push_back(
          std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(rope.num_dims)));
    }
    spec.rope = &rope;
    block_tokens = pick(16, 32, 32, 48, 64, 128);
    cache = RandomCache(spec.head_dim, block_tokens, seed + 1);
    const bool uniform = pick(true, false);
    const bool shifts = pick(true, false, false);
    const KvFormats same{random_format(), random_format()};
    const int num_pages = pick(1, 2, 9, 20, 33);
    for (int p = 0; p < num_pages; ++p) {
      const KvFormats formats = uniform ? same : KvFormats{random_format(), random_format()};
      const int num_tokens =
          p + 1 == num_pages ? 1 + static_cast<int>(random() % static_cast<uint32_t>(block_tokens))
                             : block_tokens;
      cache.append(formats, num_tokens, pick(1.0f, 0.2f), shifts ? pick(0, -64, 500) : 0);
      if (random() % 8 == 0) cache.pages().back().data = nullptr;
    }
    position = cache.next_position() - pick(1, 1, 3);
    q = cache.normal(static_cast<size_t>(group * spec.head_dim));
    out.assign(q.size(), -9.0f);
  }
  RandomCase(const RandomCase&) = delete;
  RandomCase& operator=(const RandomCase&) = delete;

  KvFormat random_format() { return static_cast<KvFormat>(cache.random()() % 5); }

  int group() const { return spec.num_heads / spec.num_kv_heads; }

  DecodeJob job() {
    DecodeJob job;
    job.q = q.data();
    job.out = out.data();
    job.position = position;
    job.pages = cache.pages();
    return job;
  }

  /// Each entry of the list with probability `share`, masked ones included.
  std::vector<PageEntry> entries(double share) {
    std::vector<PageEntry> list;
    std::uniform_real_distribution<double> uniform;
    for (size_t p = 0; p < cache.pages().size(); ++p) {
      for (int row = 0; row < block_tokens; ++row) {
        if (uniform(cache.random()) < share) {
          list.push_back(static_cast<PageEntry>(p) * static_cast<PageEntry>(block_tokens) +
                         static_cast<PageEntry>(row));
        }
      }
    }
    return list;
  }

  AttentionSpec spec;
  RopeSpec rope;
  RandomCache cache;
  int block_tokens = 32;
  LogicalPos position = 0;
  std::vector<float> q, out;
};

}  // namespace ikv::testing
