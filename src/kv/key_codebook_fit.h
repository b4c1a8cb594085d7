// Fitting of key codebooks from sample keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kv/key_codes.h"

namespace ikv {

/// Centroids ([sub][channel][centroid], head_dim * 16 floats) of one head from `num_samples` sample
/// keys (rows of `head_dim` floats, `stride` apart): keys of a calibration text, rotated uniformly
/// over the context's positions. For kProduct k-means with k-means++ seeding per sub-vector
/// (Jegou, Douze, Schmid 2011: product quantisation); for kSign mean +- mean absolute deviation.
/// Pure: the same samples and seed give the same bytes. Samples with values that are not finite are
/// left out. Cost about num_samples * head_dim * 16 * iterations multiply-adds; heads are
/// independent, so callers fit them in parallel.
std::vector<float> fit_head_codebook(KeyCodeKind kind, const float* samples, size_t num_samples,
                                     size_t stride, int head_dim, uint64_t seed,
                                     int iterations = 16);

/// Sample keys of every head: a bounded uniform sample of all that were offered (reservoir
/// sampling, Vitter 1985, algorithm R), so that a calibration text of any length costs fixed
/// memory.
class KeySampler {
 public:
  /// Holds at most `max_samples` keys a head: 4,096 fit a head in about 50 ms.
  KeySampler(std::vector<KvLayerShape> layers, size_t max_samples, uint64_t seed);

  /// Offers one key of `head_dim` floats, after RoPE.
  void add(int layer, int kv_head, const float* key);

  const std::vector<KvLayerShape>& layers() const { return layers_; }
  /// Held samples of a head: num_samples() rows of head_dim floats.
  const std::vector<float>& samples(int layer, int kv_head) const;
  size_t num_samples(int layer, int kv_head) const;

 private:
  struct Head {
    std::vector<float> keys;
    uint64_t num_offered = 0;
    uint64_t random_state = 0;
  };
  std::vector<KvLayerShape> layers_;
  std::vector<size_t> first_head_;
  std::vector<Head> heads_;
  size_t max_samples_;
};

/// Fits all heads, in parallel over `threads`; the result does not depend on their number.
/// `progress(done, all)`, if any, is called from any thread, one at a time. kInvalidArgument when
/// some head has fewer than 16 samples, or a transform is not valid. `transforms`: one a head,
/// layer by layer; empty: none.
Result<KeyCodebooks> fit_codebooks(KeyCodeKind kind, const KeySampler& sampler, uint64_t seed,
                                   ThreadPool& threads,
                                   const std::function<void(size_t, size_t)>& progress = nullptr,
                                   const std::vector<KeyTransform>& transforms = {});

}  // namespace ikv
