// What the AVX-512 kernels share: codes out of their planes, scales, masks. Internal to ops. For
// files that include nothing after it: it opens the instruction set, they close it.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstring>
#include <utility>

#include "ops/kernels.h"
#include "ops/row_addresses.h"
#include "ops/run_format.h"
#include "ops/target_pragmas.h"

IKV_TARGET_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")

#define IKV_INLINE inline __attribute__((always_inline))

namespace ikv::avx512 {

IKV_INLINE __m512i load(const void* p) {
  return _mm512_loadu_si512(p);
}

IKV_INLINE __m512 load_halves(const void* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}

// The hardware's own prefetch stops at pages and starts anew behind them.
template <size_t kBytes>
IKV_INLINE void prefetch(const uint8_t* p) {
  constexpr size_t kAhead = 3072;
  for (size_t line = 0; line < kBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + kAhead + line), _MM_HINT_T0);
  }
}

// ---- codes ----

// Shifts the two-byte lanes to the left, or right if negative.
template <int kShift>
IKV_INLINE __m512i shift_left(__m512i v) {
  if constexpr (kShift > 0) return _mm512_slli_epi16(v, kShift);
  if constexpr (kShift < 0) return _mm512_srli_epi16(v, -kShift);
  return v;
}

// Vector kVector of a plane of kWidth bits, moved up by kFirstBit.
template <int kWidth, int kFirstBit, int kVector>
IKV_INLINE __m512i plane_vector(const uint8_t* plane) {
  constexpr int kPerByte = 8 / kWidth;
  const __m512i bytes = load(plane + kVector / kPerByte * 64);
  if constexpr (kWidth == 8) return bytes;
  const __m512i moved = shift_left<kFirstBit - kVector % kPerByte * kWidth>(bytes);
  return _mm512_and_si512(moved,
                          _mm512_set1_epi8(static_cast<char>(((1 << kWidth) - 1) << kFirstBit)));
}

template <int kBits, int kVector>
IKV_INLINE __m512i code_vector(const uint8_t* planes) {
  if constexpr (kBits == 3) {
    return _mm512_or_si512(plane_vector<2, 0, kVector>(planes),
                           plane_vector<1, 2, kVector>(planes + kChunkCodes / 4));
  } else if constexpr (kBits == 5) {
    return _mm512_or_si512(plane_vector<4, 0, kVector>(planes),
                           plane_vector<1, 4, kVector>(planes + kChunkCodes / 2));
  } else if constexpr (kBits == 6) {
    return _mm512_or_si512(plane_vector<4, 0, kVector>(planes),
                           plane_vector<2, 4, kVector>(planes + kChunkCodes / 2));
  } else {
    return plane_vector<kBits, 0, kVector>(planes);
  }
}

// The header's scales and minima of 32 outputs, as floats.
struct Header {
  __m512 scale[2];
  __m512 min[2];
};

template <bool kHasMin>
IKV_INLINE Header load_header(const uint8_t* p) {
  Header header;
  for (int c = 0; c < 2; ++c) {
    header.scale[c] = load_halves(p + c * 32);
    header.min[c] = kHasMin ? load_halves(p + 2 * kPanelOutputs + c * 32) : _mm512_setzero_ps();
  }
  return header;
}

// Sixteen entries of a table of scales or minima: halves, or bytes times the header's halves.
template <bool kTwoLevel>
IKV_INLINE __m512 table_entries(const uint8_t* table, int index, __m512 header) {
  if constexpr (!kTwoLevel) return load_halves(table + index * 2);
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table + index));
  return _mm512_mul_ps(header, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
}

struct Masks {
  __mmask16 half[2];
};

IKV_INLINE Masks output_masks(size_t num_outputs) {
  const uint32_t all = num_outputs >= 32 ? ~0u : (1u << num_outputs) - 1u;
  return {{static_cast<__mmask16>(all & 0xFFFFu), static_cast<__mmask16>(all >> 16)}};
}

// The sums of a row's groups.
IKV_INLINE const std::byte* group_sums(const std::byte* record, size_t num_inputs, size_t group) {
  return record + (group == 16 ? kRowSumsAt : row_sums32_at(num_inputs));
}

IKV_INLINE __m512 result_scale(const std::byte* record) {
  float scale;
  std::memcpy(&scale, record, sizeof(scale));
  return _mm512_set1_ps(scale);
}

void multiply_rows(const PanelProduct& p);
void quantise_row(const float* x, size_t num_inputs, std::byte* record);
void multiply_floats(const PanelProduct& p);

}  // namespace ikv::avx512
