// AVX2: activations to 16 bits, and float weights.
#if defined(__x86_64__)
#include "ops/kernels_avx2-inl.h"

namespace ikv::avx2 {

void quantise_row(const float* x, size_t num_inputs, std::byte* record) {
  const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i largest = _mm256_setzero_si256();
  for (size_t i = 0; i < num_inputs; i += kLanes) {
    largest = _mm256_max_epi32(largest, _mm256_and_si256(load(x + i), magnitude));
  }
  alignas(32) int32_t lanes[kLanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), largest);
  int32_t largest_bits = 0;
  for (const int32_t lane : lanes) largest_bits = lane > largest_bits ? lane : largest_bits;
  const RowScale scale = row_scale(static_cast<uint32_t>(largest_bits));
  std::memcpy(record, &scale.scale, sizeof(float));
  auto* sums16 = reinterpret_cast<float*>(record + kRowSumsAt);
  auto* sums32 = reinterpret_cast<float*>(record + row_sums32_at(num_inputs));
  auto* values = reinterpret_cast<int16_t*>(record + row_values_at(num_inputs));
  for (size_t first = 0; first < num_inputs; first += 16) {
    int32_t sum = 0;
    for (size_t i = first; i < first + 16; i += kLanes) {
      const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(scale.inverse));
      _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), scale.inverse == 0.0f
                                                                ? _mm256_setzero_si256()
                                                                : _mm256_cvtps_epi32(scaled));
      for (size_t j = 0; j < kLanes; ++j) sum += lanes[j];
      // Of each four, the even ones first: they meet the even bytes of the codes.
      for (size_t j = 0; j < kLanes; j += 4) {
        values[i + j] = static_cast<int16_t>(lanes[j]);
        values[i + j + 1] = static_cast<int16_t>(lanes[j + 2]);
        values[i + j + 2] = static_cast<int16_t>(lanes[j + 1]);
        values[i + j + 3] = static_cast<int16_t>(lanes[j + 3]);
      }
    }
    const auto whole = static_cast<float>(sum);
    sums16[first / 16] = whole;
    sums32[first / 32] = first % 32 == 0 ? whole : sums32[first / 32] + whole;
  }
}

namespace {

template <WeightType kType>
IKV_INLINE __m256 load_weights(const std::byte* p) {
  if constexpr (kType == WeightType::kF32)
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  if constexpr (kType == WeightType::kF16) return load_halves(p);
  const __m128i words = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}

template <WeightType kType, int kRows>
void float_tile(const PanelProduct& p, size_t row) {
  constexpr size_t kElement = kType == WeightType::kF32 ? 4 : 2;
  __m256 acc[kRows][kOctets];
  for (int r = 0; r < kRows; ++r) {
    for (size_t o = 0; o < kOctets; ++o) acc[r][o] = _mm256_setzero_ps();
  }
  const float* x = p.x + row * p.num_chunks;
  const std::byte* weights = p.panel;
  for (size_t i = 0; i < p.num_chunks; ++i, weights += kPanelOutputs * kElement) {
    for (size_t o = 0; o < kOctets; ++o) {
      const __m256 w = load_weights<kType>(weights + o * kLanes * kElement);
      for (int r = 0; r < kRows; ++r) {
        const __m256 value = _mm256_set1_ps(x[static_cast<size_t>(r) * p.num_chunks + i]);
        acc[r][o] = _mm256_fmadd_ps(w, value, acc[r][o]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float* out = p.out + (row + static_cast<size_t>(r)) * p.out_stride;
    for (size_t o = 0; o * kLanes < p.num_outputs; ++o) {
      _mm256_maskstore_ps(out + o * kLanes, output_mask(p.num_outputs, o), acc[r][o]);
    }
  }
}

template <WeightType kType>
void multiply_float_rows(const PanelProduct& p) {
  size_t row = 0;
  for (; row + 2 <= p.num_rows; row += 2) float_tile<kType, 2>(p, row);
  if (row < p.num_rows) float_tile<kType, 1>(p, row);
}

}  // namespace

void multiply_floats(const PanelProduct& p) {
  if (p.format->type == WeightType::kF32) return multiply_float_rows<WeightType::kF32>(p);
  if (p.format->type == WeightType::kF16) return multiply_float_rows<WeightType::kF16>(p);
  multiply_float_rows<WeightType::kBF16>(p);
}

}  // namespace ikv::avx2

IKV_TARGET_END
#endif
