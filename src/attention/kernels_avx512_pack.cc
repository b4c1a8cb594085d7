// AVX-512 kernels that lay rows out for blocked prefill.
#if defined(__x86_64__)

#include "attention/avx512_math.h"
#include "attention/kernels_avx512.h"
#include "attention/prefill_kernels.h"

IKV_TARGET_AVX512_BEGIN

namespace ikv::attention_avx512 {
namespace {

inline int tiles_of(int head_dim) {
  return (head_dim + 63) / 64;
}

/// Transposes 16 x 16 dwords in place.
inline void transpose_16(__m512i* r) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // r[4 i + c] has, in lane block L, column 4 L + c of rows 4 i .. 4 i + 3.
  for (int c = 0; c < 4; ++c) {
    const __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i d = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xDD);
    const __m512i e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xDD);
    t[c] = _mm512_shuffle_i32x4(a, b, 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(d, e, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(a, b, 0xDD);
    t[12 + c] = _mm512_shuffle_i32x4(d, e, 0xDD);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

}  // namespace

void pack_keys8(const uint8_t* const* rows, int count, int head_dim, uint8_t* packed) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  const int steps = head_dim / 4;
  const int groups = (count + 63) / 64 * 4;
  for (int group = 0; group < groups; ++group, packed += steps * 64) {
    for (int t = 0; t < tiles_of(head_dim); ++t) {
      const __mmask64 mask = tile_mask(head_dim, t);
      __m512i r[16];
      for (int j = 0; j < 16; ++j) {
        const int key = group * 16 + j;
        const __m512i row = key < count ? _mm512_maskz_loadu_epi8(mask, rows[key] + t * 64)
                                        : _mm512_setzero_si512();
        r[j] = _mm512_xor_si512(row, flip);
      }
      transpose_16(r);
      for (int j = 0; j < 16 && t * 16 + j < steps; ++j) {
        _mm512_store_si512(packed + (t * 16 + j) * 64, r[j]);
      }
    }
  }
}

void pack_values8(const uint8_t* const* rows, int count, int head_dim, uint8_t* packed) {
  const __m512i zero = _mm512_setzero_si512();
  for (int t = 0; t < tiles_of(head_dim); ++t) {
    const __mmask64 mask = tile_mask(head_dim, t);
    uint8_t* out = packed + t * kSegmentKeys * 64;
    for (int key = 0; key < (count + 63) / 64 * 64; key += 4) {
      __m512i r[4];
      for (int j = 0; j < 4; ++j) {
        r[j] = key + j < count ? _mm512_maskz_loadu_epi8(mask, rows[key + j] + t * 64) : zero;
      }
      const Columns v = interleave_rows(r[0], r[1], r[2], r[3]);
      uint8_t* slot = out + (key / 64 * 16 + weight_slot(key / 4 % 16)) * 256;
      _mm512_store_si512(slot, v.v0);
      _mm512_store_si512(slot + 64, v.v1);
      _mm512_store_si512(slot + 128, v.v2);
      _mm512_store_si512(slot + 192, v.v3);
    }
  }
}

void pack_keys(const float* rows, int count, int head_dim, float* packed) {
  const int groups = (count + 63) / 64 * 4;
  for (int group = 0; group < groups; ++group, packed += head_dim * 16) {
    for (int d = 0; d < head_dim; d += 16) {
      __m512i r[16];
      for (int j = 0; j < 16; ++j) {
        const int key = group * 16 + j;
        r[j] = key < count ? _mm512_loadu_si512(rows + key * head_dim + d) : _mm512_setzero_si512();
      }
      transpose_16(r);
      for (int j = 0; j < 16; ++j) _mm512_store_si512(packed + (d + j) * 16, r[j]);
    }
  }
}

}  // namespace ikv::attention_avx512

IKV_TARGET_END

#endif
