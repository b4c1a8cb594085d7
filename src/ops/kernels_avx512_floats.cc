// AVX-512: activations to 16 bits, and float weights.
#if defined(__x86_64__)
#include "ops/kernels_avx512-inl.h"

namespace ikv::avx512 {

void quantise_row(const float* x, size_t num_inputs, std::byte* record) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  __m512i largest = _mm512_setzero_si512();
  for (size_t i = 0; i < num_inputs; i += 16) {
    largest = _mm512_max_epi32(largest, _mm512_and_si512(load(x + i), magnitude));
  }
  const RowScale scale = row_scale(static_cast<uint32_t>(_mm512_reduce_max_epi32(largest)));
  std::memcpy(record, &scale.scale, sizeof(float));
  auto* sums16 = reinterpret_cast<float*>(record + kRowSumsAt);
  auto* sums32 = reinterpret_cast<float*>(record + row_sums32_at(num_inputs));
  std::byte* values = record + row_values_at(num_inputs);
  const __m512 inverse = _mm512_set1_ps(scale.inverse);
  const __mmask16 finite = scale.inverse == 0.0f ? 0 : 0xFFFF;
  for (size_t i = 0; i < num_inputs; i += 16) {
    const __m512i value =
        _mm512_maskz_cvtps_epi32(finite, _mm512_mul_ps(_mm512_loadu_ps(x + i), inverse));
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(value, _mm512_set1_epi32(128)), 8);
    const __m128i high8 = _mm512_cvtepi32_epi8(high);
    const __m128i low8 = _mm512_cvtepi32_epi8(value);  // what is left after high, as signed bits
    _mm_store_si128(reinterpret_cast<__m128i*>(values + i * 2), _mm_unpacklo_epi32(high8, low8));
    _mm_store_si128(reinterpret_cast<__m128i*>(values + i * 2 + 16),
                    _mm_unpackhi_epi32(high8, low8));
    const auto sum = static_cast<float>(_mm512_reduce_add_epi32(value));
    sums16[i / 16] = sum;
    sums32[i / 32] = i % 32 == 0 ? sum : sums32[i / 32] + sum;
  }
}

namespace {

template <WeightType kType>
IKV_INLINE __m512 load_weights(const std::byte* p) {
  if constexpr (kType == WeightType::kF32) return _mm512_loadu_ps(p);
  if constexpr (kType == WeightType::kF16) return load_halves(p);
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}

template <WeightType kType, int kRows>
void float_tile(const PanelProduct& p, size_t row) {
  constexpr size_t kElement = kType == WeightType::kF32 ? 4 : 2;
  __m512 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  const float* x = p.x + row * p.num_chunks;
  const std::byte* weights = p.panel;
  for (size_t i = 0; i < p.num_chunks; ++i, weights += kPanelOutputs * kElement) {
    const __m512 w0 = load_weights<kType>(weights);
    const __m512 w1 = load_weights<kType>(weights + 16 * kElement);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512 value = _mm512_set1_ps(x[static_cast<size_t>(r) * p.num_chunks + i]);
      acc[r][0] = _mm512_fmadd_ps(w0, value, acc[r][0]);
      acc[r][1] = _mm512_fmadd_ps(w1, value, acc[r][1]);
    }
  }
  const Masks masks = output_masks(p.num_outputs);
  for (int r = 0; r < kRows; ++r) {
    float* out = p.out + (row + static_cast<size_t>(r)) * p.out_stride;
    _mm512_mask_storeu_ps(out, masks.half[0], acc[r][0]);
    _mm512_mask_storeu_ps(out + 16, masks.half[1], acc[r][1]);
  }
}

template <WeightType kType>
void multiply_float_rows(const PanelProduct& p) {
  size_t row = 0;
  for (; row + 8 <= p.num_rows; row += 8) float_tile<kType, 8>(p, row);
  for (; row + 4 <= p.num_rows; row += 4) float_tile<kType, 4>(p, row);
  for (; row + 2 <= p.num_rows; row += 2) float_tile<kType, 2>(p, row);
  if (row < p.num_rows) float_tile<kType, 1>(p, row);
}

}  // namespace

void multiply_floats(const PanelProduct& p) {
  if (p.format->type == WeightType::kF32) return multiply_float_rows<WeightType::kF32>(p);
  if (p.format->type == WeightType::kF16) return multiply_float_rows<WeightType::kF16>(p);
  multiply_float_rows<WeightType::kBF16>(p);
}

}  // namespace ikv::avx512

IKV_TARGET_END
#endif
