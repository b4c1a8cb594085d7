// Small vector functions of the AVX-512 attention kernels. Internal to attention; x86-64 only.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "core/kv_format.h"
#include "quant/kv_codec_target.h"

IKV_TARGET_AVX512_BEGIN

namespace ikv::attention_avx512 {

/// The lanes of a vector of 64 bytes that tile `tile` of a row of `head_dim` bytes has.
inline __mmask64 tile_mask(int head_dim, int tile) {
  const int left = head_dim - tile * 64;
  return left >= 64 ? ~__mmask64{0} : (__mmask64{1} << left) - 1;
}

/// sums += u (unsigned bytes) . s (signed bytes) by fours. As an instruction, since GCC 12 copies
/// the intrinsic's accumulators to and fro.
inline void add_dot(__m512i& sums, __m512i u, __m512i s) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(u), "v"(s));
}

/// kCount rows from `begin` on by pointer; where fewer are left, the last one is repeated.
template <int kCount>
inline const uint8_t* const* take_rows(const uint8_t* const* rows, int begin, int count,
                                       const uint8_t** tail) {
  if (begin + kCount <= count) return rows + begin;
  for (int i = 0; i < kCount; ++i) tail[i] = rows[begin + i < count ? begin + i : count - 1];
  return tail;
}

/// 2^t with a relative error of about 1e-7: 2^floor(t) times a minimax polynomial of the fraction.
/// Below t = -300, and for a NaN, 0.
inline __m512 exp2_bounded(__m512 t) {
  // max returns its second operand for a NaN.
  t = _mm512_max_ps(t, _mm512_set1_ps(-300.0f));
  const __m512 f = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(1.877576673e-3f);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(8.989340095e-3f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.582631805e-2f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.401536170e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.931530732e-1f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.999999251e-1f));
  return _mm512_scalef_ps(p, t);
}

/// exp(x) for x <= 0.
inline __m512 exp_negative(__m512 x) {
  return exp2_bounded(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)));
}

/// Lane i of the result is the sum of all lanes of v[i].
inline __m512i sum_lanes_of_16(const __m512i* v) {
  __m512i quads[4];
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[4 * i], v[4 * i + 1]),
                                       _mm512_unpackhi_epi32(v[4 * i], v[4 * i + 1]));
    const __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[4 * i + 2], v[4 * i + 3]),
                                       _mm512_unpackhi_epi32(v[4 * i + 2], v[4 * i + 3]));
    quads[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  }
  const __m512i a = _mm512_add_epi32(_mm512_shuffle_i32x4(quads[0], quads[1], 0x88),
                                     _mm512_shuffle_i32x4(quads[0], quads[1], 0xDD));
  const __m512i b = _mm512_add_epi32(_mm512_shuffle_i32x4(quads[2], quads[3], 0x88),
                                     _mm512_shuffle_i32x4(quads[2], quads[3], 0xDD));
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}

inline __m512 add_pairs(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
}

inline __m512 add_quads(__m512 a, __m512 b) {
  const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                       _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

inline __m512 add_blocks(__m512 a, __m512 b) {
  return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}

inline __m512 sum_lanes_of_16(const __m512* v) {
  __m512 quads[4];
  for (int i = 0; i < 4; ++i) {
    quads[i] = add_quads(add_pairs(v[4 * i], v[4 * i + 1]), add_pairs(v[4 * i + 2], v[4 * i + 3]));
  }
  return add_blocks(add_blocks(quads[0], quads[1]), add_blocks(quads[2], quads[3]));
}

/// Sixteen numbers of a plain format as floats.
template <KvFormat kFormat>
inline __m512 load_16(const uint8_t* row, int index) {
  if constexpr (kFormat == KvFormat::kF32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(row) + index);
  } else if constexpr (kFormat == KvFormat::kF16) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + index * 2)));
  } else {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + index * 2));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
}

/// Tile `tile` (64 channels) of a row of int4 codes, one byte each.
inline __m512i load_codes(const uint8_t* row, int head_dim, int tile) {
  const bool whole = head_dim - tile * 64 >= 64;
  const __m256i packed =
      whole ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + tile * 32))
            : _mm256_zextsi128_si256(
                  _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + tile * 32)));
  // Each 16 bytes hold 32 channels: doubled, with the high nibbles shifted down in the second.
  const __m512i spread = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                                  _mm512_castsi256_si512(packed));
  const __m512i shifted = _mm512_mask_srli_epi16(spread, 0xFF00FF00u, spread, 4);
  return _mm512_and_si512(shifted, _mm512_set1_epi8(15));
}

/// cap * tanh(x / cap), by tanh |t| = (1 - e) / (1 + e) with e = exp(-2 |t|).
inline __m512 soft_cap(__m512 x, float cap) {
  const __m512 t = _mm512_mul_ps(x, _mm512_set1_ps(1.0f / cap));
  const __m512 e = exp_negative(_mm512_mul_ps(_mm512_abs_ps(t), _mm512_set1_ps(-2.0f)));
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 tanh = _mm512_div_ps(_mm512_sub_ps(one, e), _mm512_add_ps(one, e));
  const __m512 sign = _mm512_and_ps(_mm512_set1_ps(-0.0f), t);
  return _mm512_or_ps(_mm512_mul_ps(_mm512_set1_ps(cap), tanh), sign);
}

/// Four rows by columns: lane block L, dword m of vector j has channel 16 L + 4 j + m of all four.
/// Members instead of arrays here and below, as GCC 12 keeps arrays of vectors in memory.
struct Columns {
  __m512i v0, v1, v2, v3;
};

inline Columns interleave_rows(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab_low = _mm512_unpacklo_epi8(a, b), ab_high = _mm512_unpackhi_epi8(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi8(c, d), cd_high = _mm512_unpackhi_epi8(c, d);
  return {_mm512_unpacklo_epi16(ab_low, cd_low), _mm512_unpackhi_epi16(ab_low, cd_low),
          _mm512_unpacklo_epi16(ab_high, cd_high), _mm512_unpackhi_epi16(ab_high, cd_high)};
}

/// Where packing four vectors of 16 weights to bytes leaves the four of group `group` (of 16 in 64
/// keys): packed values lie in the same order.
constexpr int weight_slot(int group) {
  return group % 4 * 4 + group / 4;
}

/// Undoes interleave_rows()'s order of channels: out[i] has channels 16 i .. 16 i + 15.
inline void order_channels(const __m512* in, __m512* out) {
  const __m512 a = _mm512_shuffle_f32x4(in[0], in[1], 0x44);
  const __m512 b = _mm512_shuffle_f32x4(in[2], in[3], 0x44);
  const __m512 c = _mm512_shuffle_f32x4(in[0], in[1], 0xEE);
  const __m512 d = _mm512_shuffle_f32x4(in[2], in[3], 0xEE);
  out[0] = _mm512_shuffle_f32x4(a, b, 0x88);
  out[1] = _mm512_shuffle_f32x4(a, b, 0xDD);
  out[2] = _mm512_shuffle_f32x4(c, d, 0x88);
  out[3] = _mm512_shuffle_f32x4(c, d, 0xDD);
}

}  // namespace ikv::attention_avx512

IKV_TARGET_END
