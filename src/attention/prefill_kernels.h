// Inner functions of blocked prefill: tiles of queries against segments of keys. Internal to
// attention.
#pragma once

#include <cstddef>
#include <cstdint>

#include "attention/attention_kernels.h"

namespace ikv {

/// Queries that one kernel call serves: with four vectors each they fill the registers.
inline constexpr int kTileQueries = 6;
/// Keys of one segment, at most: packed keys and values and a tile's logits stay in the first-level
/// cache, and 16-bit weights of int8 values cannot overflow 32 bits.
inline constexpr int kSegmentKeys = 128;

/// Keys and values of one segment, packed. Rows after `count` are zero up to the next 64.
struct PackedSegment {
  int count = 0;
  bool int8_keys = false;
  bool int8_values = false;
  const uint8_t* keys8 = nullptr;       ///< [16 keys][head_dim / 4][key][4], biased to unsigned
  const float* keys = nullptr;          ///< [16 keys][head_dim][key]
  const uint8_t* values8 = nullptr;     ///< [64 channels][4 keys][4 vectors]: see Columns
  const float* values = nullptr;        ///< [key][head_dim]
  const float* key_scales = nullptr;    ///< int8: [kSegmentKeys]
  const float* value_scales = nullptr;  ///< int8: [kSegmentKeys]
};

/// Running softmax of a tile's queries.
struct TileState {
  float max[kTileQueries];
  float sum[kTileQueries];
  float rescale[kTileQueries];  ///< what this segment's new maximum makes of earlier sums
};

/// A tile's queries; fewer than kTileQueries repeat the last.
struct TileQueries {
  const float* q[kTileQueries];
  const int8_t* high[kTileQueries];
  const int8_t* low[kTileQueries];
  float steps[kTileQueries];
  int32_t bias[kTileQueries];
  float scale = 0.0f;
};

/// Weights of a tile over a segment.
struct TileWeights {
  alignas(64) float x[kTileQueries][kSegmentKeys];  ///< logits, then exp(logit - max)
  alignas(64) uint8_t high[kTileQueries][kSegmentKeys];
  alignas(64) uint8_t low[kTileQueries][kSegmentKeys];
  float steps[kTileQueries];
};

/// All results of a query are functions of that query and the segment alone.
struct PrefillKernels {
  /// Rows of int8 into keys8 or values8; `count` of them. Null where a target has nothing better
  /// for int8 than floats: then all formats are decoded.
  void (*pack_keys8)(const uint8_t* const* rows, int count, int head_dim, uint8_t* packed);
  void (*pack_values8)(const uint8_t* const* rows, int count, int head_dim, uint8_t* packed);
  /// Rows of floats [count][head_dim] into `keys`; writes whole groups of 16 keys.
  void (*pack_keys)(const float* rows, int count, int head_dim, float* packed);
  /// Logits of the tile into weights.x; for whole groups of 64 keys.
  void (*score)(const TileQueries& queries, const PackedSegment& segment, int head_dim,
                TileWeights& weights);
  /// Softmax over keys first[q] .. last[q]-1 of each query on top of `state`; others weigh 0.
  /// Makes the planes for int8 values.
  void (*softmax)(const PackedSegment& segment, const int* first, const int* last, float cap,
                  TileState& state, TileWeights& weights);
  /// out[q][..] = out[q][..] * rescale + sum over keys; rows of head_dim rounded up to 64, int8
  /// values and others in the same order of channels.
  void (*values)(const PackedSegment& segment, const TileWeights& weights, const TileState& state,
                 int head_dim, float* const* out);
};

const PrefillKernels& prefill_kernels(CpuIsa isa);

const PrefillKernels& prefill_kernels_portable();
#if defined(__x86_64__)
const PrefillKernels& prefill_kernels_avx2();
const PrefillKernels& prefill_kernels_avx512();
#endif

}  // namespace ikv
