// AVX-512 kernels for logits: keys by 16, one vector of partial sums each, added across by a tree.
#if defined(__x86_64__)

#include "attention/avx512_math.h"
#include "attention/kernels_avx512.h"

IKV_TARGET_AVX512_BEGIN

namespace ikv::attention_avx512 {
namespace {

constexpr int kMaxHeadDim = 512;
constexpr int kMaxTiles = kMaxHeadDim / 64;
/// 127 * 256 + 127: the largest number whose high byte, rounded, is 127.
constexpr float kMaxQ16 = 32639.0f;

// GCC 12 drops a loop that only prefetches by the intrinsic, hence the instruction.
inline void prefetch_some(const uint8_t* const* rows, int begin, int end, int lines) {
  if (lines == 1 && end - begin == 16) {
    // The common case without a loop: prefetching must not cost more than scoring.
    for (int i = 0; i < 16; ++i) asm volatile("prefetcht1 %0" : : "m"(*rows[begin + i]));
    return;
  }
  for (int i = begin; i < end; ++i) {
    for (int line = 0; line < lines; ++line) {
      asm volatile("prefetcht1 %0" : : "m"(rows[i][line * 64]));
    }
  }
}

/// The share of the next run's rows that goes with the tile at `begin`.
inline void prefetch_next(const KeyRows& keys, int begin) {
  if (keys.next == nullptr) return;
  const RowStream& next = *keys.next;
  const int first = keys.first + begin;
  const int end = first + 16 < next.count ? first + 16 : next.count;
  prefetch_some(next.keys, first, end, next.key_lines);
  prefetch_some(next.values, first, end, next.value_lines);
}

/// Integer dot products of 16 rows of unsigned bytes with one query of two signed planes. Sums wrap
/// around: 2^32 is more than the difference of any two right results. kFlip makes signed rows
/// unsigned.
template <bool kFlip, int kTiles>
inline __m512i dot_whole_tiles(const uint8_t* const* rows, const int8_t* high, const int8_t* low) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(kFlip ? 0x80 : 0));
  __m512i sums[16];
  for (int j = 0; j < 16; ++j) {
    __m512i sum = _mm512_setzero_si512();
    for (int t = 0; t < kTiles; ++t) {
      const __m512i k = _mm512_xor_si512(_mm512_loadu_si512(rows[j] + t * 64), flip);
      add_dot(sum, k, _mm512_loadu_si512(high + t * 64));
    }
    sum = _mm512_slli_epi32(sum, 8);
    for (int t = 0; t < kTiles; ++t) {
      const __m512i k = _mm512_xor_si512(_mm512_loadu_si512(rows[j] + t * 64), flip);
      add_dot(sum, k, _mm512_loadu_si512(low + t * 64));
    }
    sums[j] = sum;
  }
  return sum_lanes_of_16(sums);
}

template <bool kFlip>
inline __m512i dot_16(const uint8_t* const* rows, const int8_t* high, const int8_t* low,
                      int head_dim) {
  if (head_dim == 64) return dot_whole_tiles<kFlip, 1>(rows, high, low);
  if (head_dim == 128) return dot_whole_tiles<kFlip, 2>(rows, high, low);
  if (head_dim == 256) return dot_whole_tiles<kFlip, 4>(rows, high, low);
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(kFlip ? 0x80 : 0));
  const int tiles = (head_dim + 63) / 64;
  __m512i sums[16];
  for (int j = 0; j < 16; ++j) {
    __m512i h = _mm512_setzero_si512(), l = h;
    for (int t = 0; t < tiles; ++t) {
      const __mmask64 mask = tile_mask(head_dim, t);
      // Lanes past the row's end meet zeros of the query.
      const __m512i k = _mm512_xor_si512(_mm512_maskz_loadu_epi8(mask, rows[j] + t * 64), flip);
      add_dot(h, k, _mm512_maskz_loadu_epi8(mask, high + t * 64));
      add_dot(l, k, _mm512_maskz_loadu_epi8(mask, low + t * 64));
    }
    sums[j] = _mm512_add_epi32(_mm512_slli_epi32(h, 8), l);
  }
  return sum_lanes_of_16(sums);
}

/// Partial sums of 16 keys for kQueries queries, which share each loaded key.
template <KvFormat kFormat, int kQueries>
inline void dot_plain(const uint8_t* const* rows, const float* q, int n, __m512 (*sums)[16]) {
  for (int j = 0; j < 16; ++j) {
    __m512 s0 = _mm512_setzero_ps(), s1 = s0, s2 = s0;
    for (int d = 0; d < n; d += 16) {
      const __m512 k = load_16<kFormat>(rows[j], d);
      s0 = _mm512_fmadd_ps(_mm512_loadu_ps(q + d), k, s0);
      if constexpr (kQueries > 1) s1 = _mm512_fmadd_ps(_mm512_loadu_ps(q + n + d), k, s1);
      if constexpr (kQueries > 2) s2 = _mm512_fmadd_ps(_mm512_loadu_ps(q + 2 * n + d), k, s2);
    }
    sums[0][j] = s0;
    if constexpr (kQueries > 1) sums[1][j] = s1;
    if constexpr (kQueries > 2) sums[2][j] = s2;
  }
}

template <KvFormat kFormat, int kQueries>
inline void score_queries(const QueryView& query, int first, const uint8_t* const* rows,
                          float* logits, size_t stride) {
  __m512 sums[kQueries][16];
  dot_plain<kFormat, kQueries>(rows, query.q + first * query.head_dim, query.head_dim, sums);
  for (int g = 0; g < kQueries; ++g) {
    _mm512_storeu_ps(logits + static_cast<size_t>(first + g) * stride,
                     _mm512_mul_ps(_mm512_set1_ps(query.scale), sum_lanes_of_16(sums[g])));
  }
}

template <KvFormat kFormat>
inline void score_plain(const QueryView& query, const KeyRows& keys, float* logits, size_t stride) {
  const uint8_t* tail[16];
  for (int begin = 0; begin < keys.count; begin += 16) {
    const uint8_t* const* rows = take_rows<16>(keys.rows, begin, keys.count, tail);
    prefetch_next(keys, begin);
    int g = 0;
    for (; g + 3 <= query.group; g += 3) {
      score_queries<kFormat, 3>(query, g, rows, logits + begin, stride);
    }
    if (query.group - g == 2) score_queries<kFormat, 2>(query, g, rows, logits + begin, stride);
    if (query.group - g == 1) score_queries<kFormat, 1>(query, g, rows, logits + begin, stride);
  }
}

/// 16 integers as 256 * high + low with low from -128 to 127.
inline void store_planes(__m512i x, int8_t* high, int8_t* low) {
  const __m512i h = _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(128)), 8);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(high), _mm512_cvtepi32_epi8(h));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(low), _mm512_cvtepi32_epi8(x));
}

/// A query for an int4 page: its product with the steps in two planes. Codes count from -8 here,
/// which halves what rounding the product costs; the rest is the same for all keys of the page.
struct PageQuery {
  float step;    ///< of the product
  int32_t bias;  ///< 8 * sum of the product's integers: codes are stored from 0
  float base;    ///< q . (minimum + 8 * step)
};

inline PageQuery quantise_for_page(const float* q, const uint8_t* scales, int n, int8_t* high,
                                   int8_t* low) {
  alignas(64) float product[kMaxHeadDim];
  const uint8_t* minima = scales + n * 2;
  __m512 most = _mm512_setzero_ps(), base = most;
  for (int d = 0; d < n; d += 16) {
    const __m512 steps = load_16<KvFormat::kF16>(scales, d);
    const __m512 x = _mm512_loadu_ps(q + d);
    const __m512 y = _mm512_mul_ps(x, steps);
    _mm512_store_ps(product + d, y);
    most = _mm512_max_ps(most, _mm512_abs_ps(y));
    base = _mm512_fmadd_ps(x, load_16<KvFormat::kF16>(minima, d), base);
    base = _mm512_fmadd_ps(y, _mm512_set1_ps(8.0f), base);
  }
  const float max = _mm512_reduce_max_ps(most);
  // Without a finite inverse the product counts as zero.
  const bool zero = !(max > 1e-30f) || !(max < 3e38f);
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : kMaxQ16 / max);
  __m512i sum = _mm512_setzero_si512();
  for (int d = 0; d < n; d += 16) {
    const __m512 y = zero ? _mm512_setzero_ps() : _mm512_load_ps(product + d);
    const __m512i x = _mm512_cvtps_epi32(_mm512_mul_ps(y, inverse));
    sum = _mm512_add_epi32(sum, x);
    store_planes(x, high + d, low + d);
  }
  return {zero ? 0.0f : max / kMaxQ16, 8 * _mm512_reduce_add_epi32(sum),
          _mm512_reduce_add_ps(base)};
}

}  // namespace

float quantise(const float* q, int head_dim, int8_t* high, int8_t* low, int32_t* sum) {
  __m512 most = _mm512_setzero_ps();
  for (int d = 0; d < head_dim; d += 16) {
    most = _mm512_max_ps(most, _mm512_abs_ps(_mm512_loadu_ps(q + d)));
  }
  const float max = _mm512_reduce_max_ps(most);
  // A smaller maximum has no finite inverse; such a query scores zero.
  const bool zero = !(max > 1e-30f);
  const __m512 inverse = _mm512_set1_ps(zero ? 0.0f : kMaxQ16 / max);
  __m512i total = _mm512_setzero_si512();
  for (int d = 0; d < head_dim; d += 16) {
    const __m512i x = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(q + d), inverse));
    total = _mm512_add_epi32(total, x);
    store_planes(x, high + d, low + d);
  }
  *sum = _mm512_reduce_add_epi32(total);
  return zero ? 0.0f : max / kMaxQ16;
}

void score_f32(const QueryView& query, const KeyRows& keys, float* logits, size_t stride) {
  score_plain<KvFormat::kF32>(query, keys, logits, stride);
}

void score_f16(const QueryView& query, const KeyRows& keys, float* logits, size_t stride) {
  score_plain<KvFormat::kF16>(query, keys, logits, stride);
}

void score_bf16(const QueryView& query, const KeyRows& keys, float* logits, size_t stride) {
  score_plain<KvFormat::kBF16>(query, keys, logits, stride);
}

void score_int8(const QueryView& query, const KeyRows& keys, float* logits, size_t stride) {
  const int n = query.head_dim;
  const uint8_t* tail[16];
  for (int begin = 0; begin < keys.count; begin += 16) {
    const uint8_t* const* rows = take_rows<16>(keys.rows, begin, keys.count, tail);
    prefetch_next(keys, begin);
    const int count = keys.count - begin < 16 ? keys.count - begin : 16;
    const __m512 scales = _mm512_cvtph_ps(
        _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1), keys.scales + begin));
    for (int g = 0; g < query.group; ++g) {
      const __m512i sums =
          _mm512_sub_epi32(dot_16<true>(rows, query.high + g * n, query.low + g * n, n),
                           _mm512_set1_epi32(query.bias[g]));
      const __m512 steps = _mm512_mul_ps(_mm512_set1_ps(query.steps[g]), scales);
      _mm512_storeu_ps(logits + static_cast<size_t>(g) * stride + begin,
                       _mm512_mul_ps(_mm512_cvtepi32_ps(sums), steps));
    }
  }
}

void score_int4(const QueryView& query, const KeyRows& keys, float* logits, size_t stride) {
  const int n = query.head_dim;
  const int tiles = (n + 63) / 64;
  const int row_bytes = tiles * 64;
  alignas(64) uint8_t codes[16 * kMaxTiles * 64];
  const uint8_t* code_rows[16];
  for (int j = 0; j < 16; ++j) code_rows[j] = codes + j * row_bytes;
  // Eight queries at a time bound the planes' room.
  for (int first = 0; first < query.group; first += 8) {
    const int queries = query.group - first < 8 ? query.group - first : 8;
    alignas(64) int8_t high[8 * kMaxHeadDim], low[8 * kMaxHeadDim];
    PageQuery pages[8];
    for (int g = 0; g < queries; ++g) {
      pages[g] = quantise_for_page(query.q + (first + g) * n, keys.page_scales, n, high + g * n,
                                   low + g * n);
    }
    const uint8_t* tail[16];
    for (int begin = 0; begin < keys.count; begin += 16) {
      const uint8_t* const* rows = take_rows<16>(keys.rows, begin, keys.count, tail);
      prefetch_next(keys, begin);
      for (int j = 0; j < 16; ++j) {
        for (int t = 0; t < tiles; ++t) {
          _mm512_store_si512(codes + j * row_bytes + t * 64, load_codes(rows[j], n, t));
        }
      }
      for (int g = 0; g < queries; ++g) {
        const __m512i sums =
            _mm512_sub_epi32(dot_16<false>(code_rows, high + g * n, low + g * n, n),
                             _mm512_set1_epi32(pages[g].bias));
        _mm512_storeu_ps(
            logits + static_cast<size_t>(first + g) * stride + begin,
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_set1_ps(query.scale * pages[g].step),
                            _mm512_set1_ps(query.scale * pages[g].base)));
      }
    }
  }
}

void finish_logits(float* x, int count, float cap) {
  const __m512 most = _mm512_set1_ps(3.402823466e+38f);
  const __m512 least = _mm512_set1_ps(-3.402823466e+38f);
  for (int i = 0; i < count; i += 16) {
    // max returns its second operand for a NaN.
    __m512 y = _mm512_min_ps(_mm512_max_ps(_mm512_loadu_ps(x + i), least), most);
    if (cap > 0.0f) y = soft_cap(y, cap);
    _mm512_storeu_ps(x + i, y);
  }
}

void softmax(float* x, int count, float* max, float* sum) {
  const int whole = count / 16 * 16;
  const auto tail = static_cast<__mmask16>((1u << (count - whole)) - 1);
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  __m512 most = _mm512_mask_loadu_ps(none, tail, x + whole);
  for (int i = 0; i < whole; i += 16) most = _mm512_max_ps(most, _mm512_loadu_ps(x + i));
  const float m = _mm512_reduce_max_ps(most);
  const __m512 shift = _mm512_set1_ps(m);
  __m512 total = _mm512_setzero_ps();
  for (int i = 0; i < whole; i += 16) {
    const __m512 e = exp_negative(_mm512_sub_ps(_mm512_loadu_ps(x + i), shift));
    total = _mm512_add_ps(total, e);
    _mm512_storeu_ps(x + i, e);
  }
  if (tail != 0) {
    const __m512 y = _mm512_sub_ps(_mm512_loadu_ps(x + whole), shift);
    const __m512 e = _mm512_maskz_mov_ps(tail, exp_negative(y));
    total = _mm512_add_ps(total, e);
    _mm512_storeu_ps(x + whole, e);
  }
  *max = m;
  *sum = _mm512_reduce_add_ps(total);
}

}  // namespace ikv::attention_avx512

IKV_TARGET_END

#endif
