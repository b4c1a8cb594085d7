// AVX-512 kernels for sums of values. Quantised values meet weights of 16 unsigned bits in two
// planes: exact integer sums, an error of 2^-17 of the largest weight each.
#if defined(__x86_64__)

#include "attention/avx512_math.h"
#include "attention/kernels_avx512.h"

IKV_TARGET_AVX512_BEGIN

namespace ikv::attention_avx512 {
namespace {

constexpr float kMaxW16 = 65535.0f;

/// Weights of one query: bytes by entry, zero after the last, and their step.
struct Planes {
  alignas(64) uint8_t high[kRunCapacity];
  alignas(64) uint8_t low[kRunCapacity];
  float step;
};

/// Quantises weights[0 .. padded-1], which are zero after the last entry.
inline void quantise_weights(const float* weights, int padded, Planes& out) {
  __m512 most = _mm512_setzero_ps();
  for (int i = 0; i < padded; i += 16) most = _mm512_max_ps(most, _mm512_load_ps(weights + i));
  const float max = _mm512_reduce_max_ps(most);
  // Weights are relative to a largest one of about 1 in the run: below this they are nothing.
  const bool zero = !(max > 1e-30f);
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : kMaxW16 / max);
  out.step = zero ? 0.0f : max / kMaxW16;
  for (int i = 0; i < padded; i += 16) {
    const __m512i w = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(weights + i), inverse));
    _mm_store_si128(reinterpret_cast<__m128i*>(out.high + i),
                    _mm512_cvtepi32_epi8(_mm512_srli_epi32(w, 8)));
    _mm_store_si128(reinterpret_cast<__m128i*>(out.low + i), _mm512_cvtepi32_epi8(w));
  }
}

/// Sums of one query over a tile of 64 channels, for both planes of its weights.
struct Sums {
  __m512i high0, high1, high2, high3, low0, low1, low2, low3;
  Sums()
      : high0(_mm512_setzero_si512()),
        high1(high0),
        high2(high0),
        high3(high0),
        low0(high0),
        low1(high0),
        low2(high0),
        low3(high0) {}
  void add(__m512i wh, __m512i wl, const Columns& v) {
    add_dot(high0, wh, v.v0);
    add_dot(high1, wh, v.v1);
    add_dot(high2, wh, v.v2);
    add_dot(high3, wh, v.v3);
    add_dot(low0, wl, v.v0);
    add_dot(low1, wl, v.v1);
    add_dot(low2, wl, v.v2);
    add_dot(low3, wl, v.v3);
  }
};

/// high * 256 + low as floats, in the order of channels.
inline void combine(const Sums& s, __m512* out) {
  const __m512 base = _mm512_set1_ps(256.0f);
  const auto whole = [&](__m512i high, __m512i low) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(high), base, _mm512_cvtepi32_ps(low));
  };
  const __m512 sums[4] = {whole(s.high0, s.low0), whole(s.high1, s.low1), whole(s.high2, s.low2),
                          whole(s.high3, s.low3)};
  order_channels(sums, out);
}

inline int four_bytes(const uint8_t* p) {
  int x;
  __builtin_memcpy(&x, p, 4);
  return x;
}

inline __m512i broadcast_four(const uint8_t* bytes) {
  return _mm512_set1_epi32(four_bytes(bytes));
}

/// Adds a query's sums over the tile to its output.
inline void store_int8(const Sums& s, float step, int head_dim, int tile, float* out) {
  __m512 sums[4];
  combine(s, sums);
  const int vectors = head_dim - tile * 64 >= 64 ? 4 : (head_dim - tile * 64) / 16;
  for (int j = 0; j < vectors; ++j) {
    float* o = out + tile * 64 + j * 16;
    _mm512_storeu_ps(o, _mm512_fmadd_ps(sums[j], _mm512_set1_ps(step), _mm512_loadu_ps(o)));
  }
}

/// One tile of 64 channels of int8 rows for kQueries queries.
template <int kQueries>
inline void add_int8_tile(const ValueRows& values, const Planes* planes, int head_dim, int tile,
                          float* out) {
  Sums s0, s1, s2;
  const __mmask64 mask = tile_mask(head_dim, tile);
  const uint8_t* tail[4];
  for (int i = 0; i < values.count; i += 4) {
    const uint8_t* const* rows = take_rows<4>(values.rows, i, values.count, tail);
    const Columns v = interleave_rows(_mm512_maskz_loadu_epi8(mask, rows[0] + tile * 64),
                                      _mm512_maskz_loadu_epi8(mask, rows[1] + tile * 64),
                                      _mm512_maskz_loadu_epi8(mask, rows[2] + tile * 64),
                                      _mm512_maskz_loadu_epi8(mask, rows[3] + tile * 64));
    s0.add(broadcast_four(planes[0].high + i), broadcast_four(planes[0].low + i), v);
    if constexpr (kQueries > 1) {
      s1.add(broadcast_four(planes[1].high + i), broadcast_four(planes[1].low + i), v);
    }
    if constexpr (kQueries > 2) {
      s2.add(broadcast_four(planes[2].high + i), broadcast_four(planes[2].low + i), v);
    }
  }
  store_int8(s0, planes[0].step, head_dim, tile, out);
  if constexpr (kQueries > 1) store_int8(s1, planes[1].step, head_dim, tile, out + head_dim);
  if constexpr (kQueries > 2) store_int8(s2, planes[2].step, head_dim, tile, out + 2 * head_dim);
}

template <int kQueries>
inline void add_int8(const ValueRows& values, const float* p, size_t stride, int head_dim,
                     float* out) {
  const int padded = (values.count + 15) / 16 * 16;
  Planes planes[kQueries];
  alignas(64) float weights[kRunCapacity];
  for (int g = 0; g < kQueries; ++g) {
    for (int i = 0; i < padded; i += 16) {
      const int left = values.count - i;
      const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFFu : (1u << left) - 1);
      const __m512 scales = _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, values.scales + i));
      const __m512 x = _mm512_maskz_loadu_ps(mask, p + static_cast<size_t>(g) * stride + i);
      _mm512_store_ps(weights + i, _mm512_mul_ps(x, scales));
    }
    quantise_weights(weights, padded, planes[g]);
  }
  for (int t = 0; t < (head_dim + 63) / 64; ++t) {
    add_int8_tile<kQueries>(values, planes, head_dim, t, out);
  }
}

/// The weights of int4 values: planes for each block of 32 channels, and what the minima add.
struct BlockWeights {
  Planes planes[2];
  float minima[2];
};

/// Steps and minima of a tile's two blocks by entry, zero after the last. Codes count from -8 here,
/// which halves what the weights' rounding costs: minima are those plus 8 steps.
struct TileParams {
  alignas(64) float steps[2][kRunCapacity];
  alignas(64) float minima[2][kRunCapacity];
};

inline void load_params(const ValueRows& values, int num_blocks, int tile, TileParams& out) {
  const int padded = (values.count + 15) / 16 * 16;
  alignas(64) uint32_t halves[2][kRunCapacity];
  for (int b = 0; b < 2; ++b) {
    const int offset = (tile * 2 + b) * 4;
    if (offset >= num_blocks * 4) {
      __builtin_memset(out.steps[b], 0, sizeof(out.steps[b]));
      __builtin_memset(out.minima[b], 0, sizeof(out.minima[b]));
      continue;
    }
    for (int i = 0; i < values.count; ++i) {
      __builtin_memcpy(&halves[b][i], values.params[i] + offset, 4);
    }
    for (int i = values.count; i < padded; ++i) halves[b][i] = 0;
    for (int i = 0; i < padded; i += 16) {
      const __m512i both = _mm512_load_si512(halves[b] + i);
      const __m512 steps = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both));
      const __m512 lows = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
      _mm512_store_ps(out.steps[b] + i, steps);
      _mm512_store_ps(out.minima[b] + i, _mm512_fmadd_ps(steps, _mm512_set1_ps(8.0f), lows));
    }
  }
}

inline void weigh_blocks(const TileParams& params, const float* p, int count, BlockWeights& out) {
  const int padded = (count + 15) / 16 * 16;
  alignas(64) float weights[kRunCapacity];
  for (int b = 0; b < 2; ++b) {
    __m512 minima = _mm512_setzero_ps();
    for (int i = 0; i < padded; i += 16) {
      const int left = count - i;
      const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFFu : (1u << left) - 1);
      const __m512 x = _mm512_maskz_loadu_ps(mask, p + i);
      _mm512_store_ps(weights + i, _mm512_mul_ps(x, _mm512_load_ps(params.steps[b] + i)));
      minima = _mm512_fmadd_ps(x, _mm512_load_ps(params.minima[b] + i), minima);
    }
    quantise_weights(weights, padded, out.planes[b]);
    out.minima[b] = _mm512_reduce_add_ps(minima);
  }
}

inline __m512i signed_codes(const uint8_t* row, int head_dim, int tile) {
  return _mm512_sub_epi8(load_codes(row, head_dim, tile), _mm512_set1_epi8(8));
}

/// Lane blocks 0 and 1 are the tile's first 32 channels, 2 and 3 the others.
inline __m512i broadcast_blocks(const uint8_t* first, const uint8_t* second) {
  return _mm512_mask_broadcastd_epi32(_mm512_set1_epi32(four_bytes(first)), 0xFF00,
                                      _mm_cvtsi32_si128(four_bytes(second)));
}

inline void add_blocks_of(Sums& s, const BlockWeights& w, int i, const Columns& v) {
  s.add(broadcast_blocks(w.planes[0].high + i, w.planes[1].high + i),
        broadcast_blocks(w.planes[0].low + i, w.planes[1].low + i), v);
}

inline void store_int4(const Sums& s, const BlockWeights& weights, int head_dim, int tile,
                       float* out) {
  __m512 sums[4];
  combine(s, sums);
  const int vectors = head_dim - tile * 64 >= 64 ? 4 : (head_dim - tile * 64) / 16;
  for (int j = 0; j < vectors; ++j) {
    float* o = out + tile * 64 + j * 16;
    const __m512 step = _mm512_set1_ps(weights.planes[j / 2].step);
    const __m512 old = _mm512_add_ps(_mm512_loadu_ps(o), _mm512_set1_ps(weights.minima[j / 2]));
    _mm512_storeu_ps(o, _mm512_fmadd_ps(sums[j], step, old));
  }
}

template <int kQueries>
inline void add_int4_tile(const ValueRows& values, const float* p, size_t stride, int head_dim,
                          int tile, float* out) {
  TileParams params;
  load_params(values, head_dim / 32, tile, params);
  BlockWeights weights[kQueries];
  for (int g = 0; g < kQueries; ++g) {
    weigh_blocks(params, p + static_cast<size_t>(g) * stride, values.count, weights[g]);
  }
  Sums s0, s1, s2;
  const uint8_t* tail[4];
  for (int i = 0; i < values.count; i += 4) {
    const uint8_t* const* rows = take_rows<4>(values.rows, i, values.count, tail);
    const Columns v = interleave_rows(
        signed_codes(rows[0], head_dim, tile), signed_codes(rows[1], head_dim, tile),
        signed_codes(rows[2], head_dim, tile), signed_codes(rows[3], head_dim, tile));
    add_blocks_of(s0, weights[0], i, v);
    if constexpr (kQueries > 1) add_blocks_of(s1, weights[1], i, v);
    if constexpr (kQueries > 2) add_blocks_of(s2, weights[2], i, v);
  }
  store_int4(s0, weights[0], head_dim, tile, out);
  if constexpr (kQueries > 1) store_int4(s1, weights[1], head_dim, tile, out + head_dim);
  if constexpr (kQueries > 2) store_int4(s2, weights[2], head_dim, tile, out + 2 * head_dim);
}

template <int kQueries>
inline void add_int4(const ValueRows& values, const float* p, size_t stride, int head_dim,
                     float* out) {
  for (int t = 0; t < (head_dim + 63) / 64; ++t) {
    add_int4_tile<kQueries>(values, p, stride, head_dim, t, out);
  }
}

/// Four vectors of one query's sums.
struct PlainSums {
  __m512 a, b, c, d;
  void load(const float* out, bool whole) {
    a = _mm512_loadu_ps(out);
    b = _mm512_loadu_ps(out + 16);
    c = whole ? _mm512_loadu_ps(out + 32) : _mm512_setzero_ps();
    d = whole ? _mm512_loadu_ps(out + 48) : _mm512_setzero_ps();
  }
  void store(float* out, bool whole) const {
    _mm512_storeu_ps(out, a);
    _mm512_storeu_ps(out + 16, b);
    if (!whole) return;
    _mm512_storeu_ps(out + 32, c);
    _mm512_storeu_ps(out + 48, d);
  }
  void add(float weight, __m512 v0, __m512 v1, __m512 v2, __m512 v3) {
    const __m512 w = _mm512_set1_ps(weight);
    a = _mm512_fmadd_ps(w, v0, a);
    b = _mm512_fmadd_ps(w, v1, b);
    c = _mm512_fmadd_ps(w, v2, c);
    d = _mm512_fmadd_ps(w, v3, d);
  }
};

/// 64 channels (or the last 32) of plain rows for kQueries queries.
template <KvFormat kFormat, int kQueries>
inline void add_plain(const ValueRows& values, const float* p, size_t stride, int head_dim,
                      float* out) {
  for (int begin = 0; begin < head_dim; begin += 64) {
    const bool whole = head_dim - begin >= 64;
    PlainSums s0, s1, s2;
    s0.load(out + begin, whole);
    if constexpr (kQueries > 1) s1.load(out + head_dim + begin, whole);
    if constexpr (kQueries > 2) s2.load(out + 2 * head_dim + begin, whole);
    for (int i = 0; i < values.count; ++i) {
      const uint8_t* row = values.rows[i];
      const __m512 v0 = load_16<kFormat>(row, begin), v1 = load_16<kFormat>(row, begin + 16);
      const __m512 v2 = whole ? load_16<kFormat>(row, begin + 32) : v0;
      const __m512 v3 = whole ? load_16<kFormat>(row, begin + 48) : v1;
      s0.add(p[i], v0, v1, v2, v3);
      if constexpr (kQueries > 1) s1.add(p[stride + i], v0, v1, v2, v3);
      if constexpr (kQueries > 2) s2.add(p[2 * stride + i], v0, v1, v2, v3);
    }
    s0.store(out + begin, whole);
    if constexpr (kQueries > 1) s1.store(out + head_dim + begin, whole);
    if constexpr (kQueries > 2) s2.store(out + 2 * head_dim + begin, whole);
  }
}

template <KvFormat kFormat, int kQueries>
inline void add_queries(const ValueRows& values, const float* p, size_t stride, int head_dim,
                        float* out) {
  if constexpr (kFormat == KvFormat::kInt8) {
    add_int8<kQueries>(values, p, stride, head_dim, out);
  } else if constexpr (kFormat == KvFormat::kInt4) {
    add_int4<kQueries>(values, p, stride, head_dim, out);
  } else {
    add_plain<kFormat, kQueries>(values, p, stride, head_dim, out);
  }
}

/// Three queries at a time: with two planes of four vectors each they fill the registers.
template <KvFormat kFormat>
inline void add_values(const ValueRows& values, const float* p, size_t stride, int group,
                       int head_dim, float* out) {
  int g = 0;
  for (; g + 3 <= group; g += 3) {
    add_queries<kFormat, 3>(values, p + static_cast<size_t>(g) * stride, stride, head_dim,
                            out + g * head_dim);
  }
  const float* rest = p + static_cast<size_t>(g) * stride;
  if (group - g == 2) add_queries<kFormat, 2>(values, rest, stride, head_dim, out + g * head_dim);
  if (group - g == 1) add_queries<kFormat, 1>(values, rest, stride, head_dim, out + g * head_dim);
}

}  // namespace

void values_f32(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                float* out) {
  add_values<KvFormat::kF32>(values, p, stride, group, head_dim, out);
}

void values_f16(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                float* out) {
  add_values<KvFormat::kF16>(values, p, stride, group, head_dim, out);
}

void values_bf16(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                 float* out) {
  add_values<KvFormat::kBF16>(values, p, stride, group, head_dim, out);
}

void values_int8(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                 float* out) {
  add_values<KvFormat::kInt8>(values, p, stride, group, head_dim, out);
}

void values_int4(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                 float* out) {
  add_values<KvFormat::kInt4>(values, p, stride, group, head_dim, out);
}

}  // namespace ikv::attention_avx512

IKV_TARGET_END

#endif
