// Fitting of key codebooks from sample keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

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

}  // namespace ikv
