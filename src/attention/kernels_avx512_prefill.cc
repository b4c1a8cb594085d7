// AVX-512 kernels of blocked prefill.
#if defined(__x86_64__)

#include "attention/avx512_math.h"
#include "attention/kernels_avx512.h"
#include "attention/prefill_kernels.h"

IKV_TARGET_AVX512_BEGIN

namespace ikv::attention_avx512 {
namespace {

constexpr float kMaxW16 = 65535.0f;

inline int tiles_of(int head_dim) {
  return (head_dim + 63) / 64;
}

/// Four vectors of one query: 64 keys or 64 channels.
struct Four {
  __m512i a, b, c, d;
  void zero() { a = b = c = d = _mm512_setzero_si512(); }
  void add(__m512i u, const __m512i& s0, const __m512i& s1, const __m512i& s2, const __m512i& s3) {
    add_dot(a, u, s0);
    add_dot(b, u, s1);
    add_dot(c, u, s2);
    add_dot(d, u, s3);
  }
  void add_keys(const __m512i& u0, const __m512i& u1, const __m512i& u2, const __m512i& u3,
                __m512i s) {
    add_dot(a, u0, s);
    add_dot(b, u1, s);
    add_dot(c, u2, s);
    add_dot(d, u3, s);
  }
  void shift_left_8() {
    a = _mm512_slli_epi32(a, 8);
    b = _mm512_slli_epi32(b, 8);
    c = _mm512_slli_epi32(c, 8);
    d = _mm512_slli_epi32(d, 8);
  }
};

struct FourFloats {
  __m512 a, b, c, d;
  void zero() { a = b = c = d = _mm512_setzero_ps(); }
  void add(__m512 x, const __m512& y0, const __m512& y1, const __m512& y2, const __m512& y3) {
    a = _mm512_fmadd_ps(x, y0, a);
    b = _mm512_fmadd_ps(x, y1, b);
    c = _mm512_fmadd_ps(x, y2, c);
    d = _mm512_fmadd_ps(x, y3, d);
  }
};

inline __m512i broadcast_4(const void* bytes) {
  int x;
  __builtin_memcpy(&x, bytes, 4);
  return _mm512_set1_epi32(x);
}

/// Adds one plane of six queries against 64 keys.
inline void add_plane(const int8_t* const* plane, const uint8_t* keys, int steps, Four& s0,
                      Four& s1, Four& s2, Four& s3, Four& s4, Four& s5) {
  const int8_t *p0 = plane[0], *p1 = plane[1], *p2 = plane[2], *p3 = plane[3], *p4 = plane[4],
               *p5 = plane[5];
  const ptrdiff_t group = static_cast<ptrdiff_t>(steps) * 64;
  for (int i = 0; i < steps; ++i) {
    const __m512i k0 = _mm512_load_si512(keys + i * 64);
    const __m512i k1 = _mm512_load_si512(keys + group + i * 64);
    const __m512i k2 = _mm512_load_si512(keys + 2 * group + i * 64);
    const __m512i k3 = _mm512_load_si512(keys + 3 * group + i * 64);
    s0.add_keys(k0, k1, k2, k3, broadcast_4(p0 + i * 4));
    s1.add_keys(k0, k1, k2, k3, broadcast_4(p1 + i * 4));
    s2.add_keys(k0, k1, k2, k3, broadcast_4(p2 + i * 4));
    s3.add_keys(k0, k1, k2, k3, broadcast_4(p3 + i * 4));
    s4.add_keys(k0, k1, k2, k3, broadcast_4(p4 + i * 4));
    s5.add_keys(k0, k1, k2, k3, broadcast_4(p5 + i * 4));
  }
}

inline void store_logits8(const Four& s, int32_t bias, float step, const float* scales,
                          float* out) {
  const __m512i b = _mm512_set1_epi32(bias);
  const __m512 f = _mm512_set1_ps(step);
  const auto store = [&](__m512i sum, int i) {
    const __m512 x = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum, b));
    _mm512_store_ps(out + i, _mm512_mul_ps(x, _mm512_mul_ps(f, _mm512_load_ps(scales + i))));
  };
  store(s.a, 0);
  store(s.b, 16);
  store(s.c, 32);
  store(s.d, 48);
}

inline void score_int8(const TileQueries& q, const PackedSegment& segment, int head_dim,
                       TileWeights& w) {
  const int steps = head_dim / 4;
  for (int key = 0; key < segment.count; key += 64) {
    const uint8_t* keys = segment.keys8 + key * head_dim;
    Four s0, s1, s2, s3, s4, s5;
    s0.zero(), s1.zero(), s2.zero(), s3.zero(), s4.zero(), s5.zero();
    add_plane(q.high, keys, steps, s0, s1, s2, s3, s4, s5);
    s0.shift_left_8(), s1.shift_left_8(), s2.shift_left_8();
    s3.shift_left_8(), s4.shift_left_8(), s5.shift_left_8();
    add_plane(q.low, keys, steps, s0, s1, s2, s3, s4, s5);
    const float* scales = segment.key_scales + key;
    store_logits8(s0, q.bias[0], q.steps[0], scales, w.x[0] + key);
    store_logits8(s1, q.bias[1], q.steps[1], scales, w.x[1] + key);
    store_logits8(s2, q.bias[2], q.steps[2], scales, w.x[2] + key);
    store_logits8(s3, q.bias[3], q.steps[3], scales, w.x[3] + key);
    store_logits8(s4, q.bias[4], q.steps[4], scales, w.x[4] + key);
    store_logits8(s5, q.bias[5], q.steps[5], scales, w.x[5] + key);
  }
}

inline void store_logits(const FourFloats& s, float scale, float* out) {
  const __m512 f = _mm512_set1_ps(scale);
  _mm512_store_ps(out, _mm512_mul_ps(s.a, f));
  _mm512_store_ps(out + 16, _mm512_mul_ps(s.b, f));
  _mm512_store_ps(out + 32, _mm512_mul_ps(s.c, f));
  _mm512_store_ps(out + 48, _mm512_mul_ps(s.d, f));
}

inline void score_float(const TileQueries& q, const PackedSegment& segment, int head_dim,
                        TileWeights& w) {
  const float *q0 = q.q[0], *q1 = q.q[1], *q2 = q.q[2], *q3 = q.q[3], *q4 = q.q[4], *q5 = q.q[5];
  const ptrdiff_t group = static_cast<ptrdiff_t>(head_dim) * 16;
  for (int key = 0; key < segment.count; key += 64) {
    const float* keys = segment.keys + static_cast<ptrdiff_t>(key) * head_dim;
    FourFloats s0, s1, s2, s3, s4, s5;
    s0.zero(), s1.zero(), s2.zero(), s3.zero(), s4.zero(), s5.zero();
    for (int d = 0; d < head_dim; ++d) {
      const __m512 k0 = _mm512_load_ps(keys + d * 16);
      const __m512 k1 = _mm512_load_ps(keys + group + d * 16);
      const __m512 k2 = _mm512_load_ps(keys + 2 * group + d * 16);
      const __m512 k3 = _mm512_load_ps(keys + 3 * group + d * 16);
      s0.add(_mm512_set1_ps(q0[d]), k0, k1, k2, k3);
      s1.add(_mm512_set1_ps(q1[d]), k0, k1, k2, k3);
      s2.add(_mm512_set1_ps(q2[d]), k0, k1, k2, k3);
      s3.add(_mm512_set1_ps(q3[d]), k0, k1, k2, k3);
      s4.add(_mm512_set1_ps(q4[d]), k0, k1, k2, k3);
      s5.add(_mm512_set1_ps(q5[d]), k0, k1, k2, k3);
    }
    store_logits(s0, q.scale, w.x[0] + key);
    store_logits(s1, q.scale, w.x[1] + key);
    store_logits(s2, q.scale, w.x[2] + key);
    store_logits(s3, q.scale, w.x[3] + key);
    store_logits(s4, q.scale, w.x[4] + key);
    store_logits(s5, q.scale, w.x[5] + key);
  }
}

void tile_score(const TileQueries& q, const PackedSegment& segment, int head_dim, TileWeights& w) {
  if (segment.int8_keys) {
    score_int8(q, segment, head_dim, w);
  } else {
    score_float(q, segment, head_dim, w);
  }
}

/// Lanes first .. last-1 of the 16 from `begin` on.
inline __mmask16 lanes_between(int begin, int first, int last) {
  const int low = first - begin, high = last - begin;
  const uint32_t below_high = high >= 16 ? 0xFFFFu : high <= 0 ? 0u : (1u << high) - 1;
  const uint32_t below_low = low >= 16 ? 0xFFFFu : low <= 0 ? 0u : (1u << low) - 1;
  return static_cast<__mmask16>(below_high & ~below_low);
}

/// Softcap and mask, where there are any; returns the largest logit that is not a NaN.
inline float largest_logit(float* x, int padded, int first, int last, float cap) {
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  const __m512 least = _mm512_set1_ps(-3.402823466e+38f),
               most_finite = _mm512_set1_ps(3.402823466e+38f);
  const bool masked = first > 0 || last < padded;
  __m512 most = none;
  if (!masked && cap <= 0.0f) {
    for (int i = 0; i < padded; i += 16) most = _mm512_max_ps(_mm512_load_ps(x + i), most);
  } else {
    for (int i = 0; i < padded; i += 16) {
      __m512 y = _mm512_min_ps(_mm512_max_ps(_mm512_load_ps(x + i), least), most_finite);
      if (cap > 0.0f) y = soft_cap(y, cap);
      y = _mm512_mask_mov_ps(none, lanes_between(i, first, last), y);
      _mm512_store_ps(x + i, y);
      most = _mm512_max_ps(most, y);
    }
  }
  return _mm512_reduce_max_ps(_mm512_min_ps(most, most_finite));
}

/// x = exp(x - max); returns the sum. With values' scales, also weights = x * scales and their
/// largest.
template <bool kScaled>
inline float exponentiate(float* x, int padded, float max, const float* scales, float* weights,
                          float* largest) {
  const __m512 log2e = _mm512_set1_ps(1.44269504f), shift = _mm512_set1_ps(max);
  __m512 total = _mm512_setzero_ps(), most = total;
  for (int i = 0; i < padded; i += 16) {
    // An infinite logit weighs as the largest finite one; min passes a NaN on.
    const __m512 below =
        _mm512_min_ps(_mm512_setzero_ps(), _mm512_sub_ps(_mm512_load_ps(x + i), shift));
    const __m512 e = exp2_bounded(_mm512_mul_ps(below, log2e));
    _mm512_store_ps(x + i, e);
    total = _mm512_add_ps(total, e);
    if constexpr (kScaled) {
      const __m512 w = _mm512_mul_ps(e, _mm512_load_ps(scales + i));
      _mm512_store_ps(weights + i, w);
      most = _mm512_max_ps(most, w);
    }
  }
  if constexpr (kScaled) *largest = _mm512_reduce_max_ps(most);
  return _mm512_reduce_add_ps(total);
}

/// The two planes of weights[0 .. 63], in the order of weight_slot().
inline void make_planes_64(const float* weights, __m512 inverse, uint8_t* high, uint8_t* low) {
  const auto quantise = [&](int i) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_load_ps(weights + i), inverse));
  };
  const __m512i a = _mm512_packus_epi32(quantise(0), quantise(16));
  const __m512i b = _mm512_packus_epi32(quantise(32), quantise(48));
  const __m512i byte = _mm512_set1_epi16(0xFF);
  _mm512_store_si512(high, _mm512_packus_epi16(_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
  _mm512_store_si512(low,
                     _mm512_packus_epi16(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte)));
}

inline float make_planes(const float* weights, float largest, int count, uint8_t* high,
                         uint8_t* low) {
  const bool zero = !(largest > 1e-30f);
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : kMaxW16 / largest);
  for (int i = 0; i < count; i += 64) make_planes_64(weights + i, inverse, high + i, low + i);
  return zero ? 0.0f : largest / kMaxW16;
}

void tile_softmax(const PackedSegment& segment, const int* first, const int* last, float cap,
                  TileState& state, TileWeights& w) {
  const int padded = (segment.count + 15) / 16 * 16;
  alignas(64) float weights[kSegmentKeys];
  for (int i = padded; i < kSegmentKeys; i += 16) {
    _mm512_store_ps(weights + i, _mm512_setzero_ps());
  }
  alignas(64) float change[16] = {};
  for (int q = 0; q < kTileQueries; ++q) {
    const float segment_max = largest_logit(w.x[q], padded, first[q], last[q], cap);
    const float max = segment_max > state.max[q] ? segment_max : state.max[q];
    change[q] = state.max[q] - max;
    state.max[q] = max;
  }
  alignas(64) float rescale[16];
  _mm512_store_ps(rescale, exp_negative(_mm512_load_ps(change)));
  for (int q = 0; q < kTileQueries; ++q) {
    float sum, largest = 0.0f;
    if (segment.int8_values) {
      sum =
          exponentiate<true>(w.x[q], padded, state.max[q], segment.value_scales, weights, &largest);
      w.steps[q] = make_planes(weights, largest, segment.count, w.high[q], w.low[q]);
    } else {
      sum = exponentiate<false>(w.x[q], padded, state.max[q], nullptr, nullptr, nullptr);
    }
    // Without a new maximum the factor is 1 exactly, so that masked segments change nothing.
    state.rescale[q] = change[q] == 0.0f ? 1.0f : rescale[q];
    state.sum[q] = state.sum[q] * state.rescale[q] + sum;
  }
}

inline void add_weights_plane(const uint8_t (*plane)[kSegmentKeys], const uint8_t* values,
                              int count, Four& s0, Four& s1, Four& s2, Four& s3, Four& s4,
                              Four& s5) {
  for (int key = 0; key < (count + 63) / 64 * 64; key += 4, values += 256) {
    const __m512i v0 = _mm512_load_si512(values), v1 = _mm512_load_si512(values + 64);
    const __m512i v2 = _mm512_load_si512(values + 128), v3 = _mm512_load_si512(values + 192);
    s0.add(broadcast_4(plane[0] + key), v0, v1, v2, v3);
    s1.add(broadcast_4(plane[1] + key), v0, v1, v2, v3);
    s2.add(broadcast_4(plane[2] + key), v0, v1, v2, v3);
    s3.add(broadcast_4(plane[3] + key), v0, v1, v2, v3);
    s4.add(broadcast_4(plane[4] + key), v0, v1, v2, v3);
    s5.add(broadcast_4(plane[5] + key), v0, v1, v2, v3);
  }
}

/// out = out * rescale + sums * step, in the order of channels.
inline void store_values8(const Four& s, float rescale, float step, float* out) {
  const __m512 sums[4] = {_mm512_cvtepi32_ps(s.a), _mm512_cvtepi32_ps(s.b), _mm512_cvtepi32_ps(s.c),
                          _mm512_cvtepi32_ps(s.d)};
  __m512 ordered[4];
  order_channels(sums, ordered);
  const __m512 r = _mm512_set1_ps(rescale), f = _mm512_set1_ps(step);
  for (int j = 0; j < 4; ++j) {
    const __m512 old = _mm512_mul_ps(_mm512_loadu_ps(out + j * 16), r);
    _mm512_storeu_ps(out + j * 16, _mm512_fmadd_ps(ordered[j], f, old));
  }
}

inline void values_int8(const PackedSegment& segment, const TileWeights& w, const TileState& state,
                        int tile, float* const* out) {
  const uint8_t* values = segment.values8 + tile * kSegmentKeys * 64;
  Four s0, s1, s2, s3, s4, s5;
  s0.zero(), s1.zero(), s2.zero(), s3.zero(), s4.zero(), s5.zero();
  add_weights_plane(w.high, values, segment.count, s0, s1, s2, s3, s4, s5);
  s0.shift_left_8(), s1.shift_left_8(), s2.shift_left_8();
  s3.shift_left_8(), s4.shift_left_8(), s5.shift_left_8();
  add_weights_plane(w.low, values, segment.count, s0, s1, s2, s3, s4, s5);
  store_values8(s0, state.rescale[0], w.steps[0], out[0] + tile * 64);
  store_values8(s1, state.rescale[1], w.steps[1], out[1] + tile * 64);
  store_values8(s2, state.rescale[2], w.steps[2], out[2] + tile * 64);
  store_values8(s3, state.rescale[3], w.steps[3], out[3] + tile * 64);
  store_values8(s4, state.rescale[4], w.steps[4], out[4] + tile * 64);
  store_values8(s5, state.rescale[5], w.steps[5], out[5] + tile * 64);
}

inline void load_rescaled(const float* out, float rescale, FourFloats& s) {
  const __m512 r = _mm512_set1_ps(rescale);
  s.a = _mm512_mul_ps(_mm512_loadu_ps(out), r);
  s.b = _mm512_mul_ps(_mm512_loadu_ps(out + 16), r);
  s.c = _mm512_mul_ps(_mm512_loadu_ps(out + 32), r);
  s.d = _mm512_mul_ps(_mm512_loadu_ps(out + 48), r);
}

inline void store_floats(const FourFloats& s, float* out) {
  _mm512_storeu_ps(out, s.a);
  _mm512_storeu_ps(out + 16, s.b);
  _mm512_storeu_ps(out + 32, s.c);
  _mm512_storeu_ps(out + 48, s.d);
}

inline void values_float(const PackedSegment& segment, const TileWeights& w, const TileState& state,
                         int head_dim, int tile, float* const* out) {
  FourFloats s0, s1, s2, s3, s4, s5;
  const int offset = tile * 64;
  load_rescaled(out[0] + offset, state.rescale[0], s0);
  load_rescaled(out[1] + offset, state.rescale[1], s1);
  load_rescaled(out[2] + offset, state.rescale[2], s2);
  load_rescaled(out[3] + offset, state.rescale[3], s3);
  load_rescaled(out[4] + offset, state.rescale[4], s4);
  load_rescaled(out[5] + offset, state.rescale[5], s5);
  // A last tile of 32 channels reads what follows the row; those sums are never used.
  const float* v = segment.values + offset;
  for (int key = 0; key < segment.count; ++key, v += head_dim) {
    const __m512 v0 = _mm512_loadu_ps(v), v1 = _mm512_loadu_ps(v + 16);
    const __m512 v2 = _mm512_loadu_ps(v + 32), v3 = _mm512_loadu_ps(v + 48);
    s0.add(_mm512_set1_ps(w.x[0][key]), v0, v1, v2, v3);
    s1.add(_mm512_set1_ps(w.x[1][key]), v0, v1, v2, v3);
    s2.add(_mm512_set1_ps(w.x[2][key]), v0, v1, v2, v3);
    s3.add(_mm512_set1_ps(w.x[3][key]), v0, v1, v2, v3);
    s4.add(_mm512_set1_ps(w.x[4][key]), v0, v1, v2, v3);
    s5.add(_mm512_set1_ps(w.x[5][key]), v0, v1, v2, v3);
  }
  store_floats(s0, out[0] + offset);
  store_floats(s1, out[1] + offset);
  store_floats(s2, out[2] + offset);
  store_floats(s3, out[3] + offset);
  store_floats(s4, out[4] + offset);
  store_floats(s5, out[5] + offset);
}

void tile_values(const PackedSegment& segment, const TileWeights& w, const TileState& state,
                 int head_dim, float* const* out) {
  for (int t = 0; t < tiles_of(head_dim); ++t) {
    if (segment.int8_values) {
      values_int8(segment, w, state, t, out);
    } else {
      values_float(segment, w, state, head_dim, t, out);
    }
  }
}

}  // namespace
}  // namespace ikv::attention_avx512

IKV_TARGET_END

namespace ikv {
const PrefillKernels& prefill_kernels_avx512() {
  static constexpr PrefillKernels kTable = {
      attention_avx512::pack_keys8, attention_avx512::pack_values8, attention_avx512::pack_keys,
      attention_avx512::tile_score, attention_avx512::tile_softmax, attention_avx512::tile_values};
  return kTable;
}
}  // namespace ikv

#endif
