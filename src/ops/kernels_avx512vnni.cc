// AVX-512 with VNNI, one row: weights straight from memory. Intrinsics, since Highway 1.0 has no
// 8-bit dot of unsigned by signed; functions get their target by pragma, so that nothing else in
// the binary needs these instructions.
#if defined(__x86_64__)
#include "ops/kernels_avx512-inl.h"

namespace ikv {
namespace avx512 {
namespace {

struct Dots {
  __m512i high[2];
  __m512i low[2];
};

template <int kBits, int kStep>
IKV_INLINE void dot_step(const uint8_t* planes, const std::byte* values, Dots& dots) {
  int32_t parts[2];
  std::memcpy(parts, values + kStep * 8, sizeof(parts));
  const __m512i high = _mm512_set1_epi32(parts[0]);
  const __m512i low = _mm512_set1_epi32(parts[1]);
  const __m512i w0 = code_vector<kBits, 2 * kStep>(planes);
  const __m512i w1 = code_vector<kBits, 2 * kStep + 1>(planes);
  dots.high[0] = _mm512_dpbusd_epi32(dots.high[0], w0, high);
  dots.high[1] = _mm512_dpbusd_epi32(dots.high[1], w1, high);
  dots.low[0] = _mm512_dpbusd_epi32(dots.low[0], w0, low);
  dots.low[1] = _mm512_dpbusd_epi32(dots.low[1], w1, low);
}

template <int kBits, int kFirstStep, int... kSteps>
IKV_INLINE Dots dot_group(const uint8_t* planes, const std::byte* values,
                          std::integer_sequence<int, kSteps...>) {
  const __m512i zero = _mm512_setzero_si512();
  Dots dots = {{zero, zero}, {zero, zero}};
  (dot_step<kBits, kFirstStep + kSteps>(planes, values, dots), ...);
  return dots;
}

template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel, int kIndex>
IKV_INLINE void add_group(const uint8_t* chunk, const std::byte* values, const float* sums,
                          const Header& header, __m512 offset, __m512 acc[2]) {
  constexpr int kSteps = kGroup / 4;
  constexpr int kEntries = kChunkInputs / kGroup * kPanelOutputs;
  const Dots dots =
      dot_group<kBits, kIndex * kSteps>(chunk, values, std::make_integer_sequence<int, kSteps>());
  const uint8_t* scales = chunk + kBits * 128;
  const uint8_t* mins = scales + kEntries * (kTwoLevel ? 1 : 2);
  const __m512 sum = _mm512_set1_ps(sums[kIndex]);
  for (int c = 0; c < 2; ++c) {
    const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(dots.high[c], 8), dots.low[c]);
    const int entry = kIndex * static_cast<int>(kPanelOutputs) + c * 16;
    const __m512 scale = table_entries<kTwoLevel>(scales, entry, header.scale[c]);
    const __m512 min = kHasMin ? table_entries<kTwoLevel>(mins, entry, header.min[c])
                               : _mm512_mul_ps(scale, offset);
    acc[c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, acc[c]);
    acc[c] = _mm512_fmadd_ps(sum, min, acc[c]);
  }
}

// The hardware's own prefetch stops at pages and starts anew behind them.
template <size_t kBytes>
IKV_INLINE void prefetch(const uint8_t* p) {
  constexpr size_t kAhead = 3072;
  for (size_t line = 0; line < kBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + kAhead + line), _MM_HINT_T0);
  }
}

template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel>
void multiply_one_row(const PanelProduct& p) {
  constexpr size_t kTableBytes = kChunkInputs / kGroup * kPanelOutputs * (kTwoLevel ? 1 : 2);
  constexpr size_t kChunkBytes = kBits * 128 + kTableBytes * (kHasMin ? 2 : 1);
  const std::byte* record = p.rows.data;
  const std::byte* values = record + row_values_at(p.rows.num_inputs);
  const float* sums = group_sums(record, p.rows.num_inputs, kGroup);
  const auto* chunk = reinterpret_cast<const uint8_t*>(p.panel);
  const __m512 offset = _mm512_set1_ps(-p.format->offset);
  const size_t run_chunks = kTwoLevel ? p.format->run_chunks : p.num_chunks;
  Header header{};
  __m512 acc[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (size_t run = 0; run < p.num_chunks; run += run_chunks) {
    if constexpr (kTwoLevel) {
      header = load_header<kHasMin>(chunk);
      chunk += p.format->header_bytes;
    }
    for (size_t c = 0; c < run_chunks; ++c) {
      prefetch<kChunkBytes>(chunk);
      add_group<kBits, kGroup, kHasMin, kTwoLevel, 0>(chunk, values, sums, header, offset, acc);
      if constexpr (kGroup == 16) {
        add_group<kBits, kGroup, kHasMin, kTwoLevel, 1>(chunk, values, sums, header, offset, acc);
      }
      chunk += kChunkBytes;
      values += 2 * kChunkInputs;
      sums += kChunkInputs / kGroup;
    }
  }
  const Masks masks = output_masks(p.num_outputs);
  const __m512 scale = result_scale(record);
  for (int c = 0; c < 2; ++c) {
    _mm512_mask_storeu_ps(p.out + c * 16, masks.half[c], _mm512_mul_ps(acc[c], scale));
  }
}

struct OneRow {
  template <int kBits, int kGroup, bool kTwoLevel>
  static void run(const PanelProduct& p) {
    if (p.format->has_min) return multiply_one_row<kBits, kGroup, true, kTwoLevel>(p);
    multiply_one_row<kBits, kGroup, false, kTwoLevel>(p);
  }
};

void multiply_quantised(const PanelProduct& p) {
  if (p.num_rows > 1) return multiply_rows(p);
  run_format<OneRow>(p);
}

}  // namespace
}  // namespace avx512

const MatmulKernels& avx512vnni_kernels() {
  static constexpr MatmulKernels kKernels = {CpuIsa::kAvx512Vnni, avx512::quantise_row,
                                             avx512::multiply_quantised, avx512::multiply_floats};
  return kKernels;
}

}  // namespace ikv

IKV_TARGET_END
#endif
