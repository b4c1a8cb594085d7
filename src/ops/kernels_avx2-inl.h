// What the AVX2 kernels share: codes out of their planes, scales, masks. Internal to ops. For files
// that include nothing after it: it opens the instruction set, they close it.
#pragma once

#include <immintrin.h>

#include <cstring>
#include <utility>

#include "ops/kernels.h"
#include "ops/row_addresses.h"
#include "ops/run_format.h"
#include "ops/target_pragmas.h"

IKV_TARGET_BEGIN("avx2,fma,f16c")

#define IKV_INLINE inline __attribute__((always_inline))

namespace ikv::avx2 {

constexpr size_t kLanes = 8;
constexpr size_t kOctets = kPanelOutputs / kLanes;

IKV_INLINE __m256i load(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

IKV_INLINE __m256 load_halves(const void* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}

IKV_INLINE __m256i output_mask(size_t num_outputs, size_t octet) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const int left = static_cast<int>(num_outputs) - static_cast<int>(octet * kLanes);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(left), lanes);
}

// Makes the sums so far opaque: GCC otherwise re-orders sums of integers until all products of a
// group are made, and kept in memory, before the first addition.
IKV_INLINE void pin_sums(__m256i& a, __m256i& b) {
  asm volatile("" : "+x"(a), "+x"(b));
}

// ---- codes ----

// Shifts the two-byte lanes to the left, or right if negative.
template <int kShift>
IKV_INLINE __m256i shift_left(__m256i v) {
  if constexpr (kShift > 0) return _mm256_slli_epi16(v, kShift);
  if constexpr (kShift < 0) return _mm256_srli_epi16(v, -kShift);
  return v;
}

// Half of vector kVector of a plane of kWidth bits, moved up by kFirstBit; the second half if
// `plane` stands 32 bytes further.
template <int kWidth, int kFirstBit, int kVector>
IKV_INLINE __m256i plane_vector(const uint8_t* plane) {
  constexpr int kPerByte = 8 / kWidth;
  const __m256i bytes = load(plane + kVector / kPerByte * 64);
  if constexpr (kWidth == 8) return bytes;
  const __m256i moved = shift_left<kFirstBit - kVector % kPerByte * kWidth>(bytes);
  return _mm256_and_si256(moved,
                          _mm256_set1_epi8(static_cast<char>(((1 << kWidth) - 1) << kFirstBit)));
}

template <int kBits, int kVector>
IKV_INLINE __m256i code_vector(const uint8_t* planes) {
  if constexpr (kBits == 3) {
    return _mm256_or_si256(plane_vector<2, 0, kVector>(planes),
                           plane_vector<1, 2, kVector>(planes + kChunkCodes / 4));
  } else if constexpr (kBits == 5) {
    return _mm256_or_si256(plane_vector<4, 0, kVector>(planes),
                           plane_vector<1, 4, kVector>(planes + kChunkCodes / 2));
  } else if constexpr (kBits == 6) {
    return _mm256_or_si256(plane_vector<4, 0, kVector>(planes),
                           plane_vector<2, 4, kVector>(planes + kChunkCodes / 2));
  } else {
    return plane_vector<kBits, 0, kVector>(planes);
  }
}

// ---- scales and minima ----

// Eight entries of a table: halves, or bytes times the header's halves, which start at `header`.
template <bool kTwoLevel>
IKV_INLINE __m256 table_entries(const uint8_t* header, const uint8_t* table, size_t index) {
  if constexpr (!kTwoLevel) return load_halves(table + index * 2);
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(table + index));
  return _mm256_mul_ps(load_halves(header + index % kPanelOutputs * 2),
                       _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
}

void multiply_few_rows(const PanelProduct& p);
void quantise_row(const float* x, size_t num_inputs, std::byte* record);
void multiply_floats(const PanelProduct& p);

}  // namespace ikv::avx2
