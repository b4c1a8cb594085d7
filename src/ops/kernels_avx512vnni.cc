// AVX-512 with VNNI, few rows: weights straight from memory. Intrinsics, since Highway 1.0 has no
// 8-bit dot of unsigned by signed; functions get their target by pragma, so that nothing else in
// the binary needs these instructions.
#if defined(__x86_64__)
#include "ops/kernels_avx512-inl.h"

namespace ikv {
namespace avx512 {
namespace {

template <int kRows>
struct Dots {
  __m512i high[kRows][2];
  __m512i low[kRows][2];
};

template <int kBits, int kRows, int kStep>
IKV_INLINE void dot_step(const uint8_t* planes, const RowAddresses& values, Dots<kRows>& dots) {
  const __m512i w0 = code_vector<kBits, 2 * kStep>(planes);
  const __m512i w1 = code_vector<kBits, 2 * kStep + 1>(planes);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    int32_t parts[2];
    std::memcpy(parts, values.row(r) + kStep * 8, sizeof(parts));
    const __m512i high = _mm512_set1_epi32(parts[0]);
    const __m512i low = _mm512_set1_epi32(parts[1]);
    dots.high[r][0] = _mm512_dpbusd_epi32(dots.high[r][0], w0, high);
    dots.high[r][1] = _mm512_dpbusd_epi32(dots.high[r][1], w1, high);
    dots.low[r][0] = _mm512_dpbusd_epi32(dots.low[r][0], w0, low);
    dots.low[r][1] = _mm512_dpbusd_epi32(dots.low[r][1], w1, low);
  }
}

template <int kBits, int kRows, int kFirstStep, int... kSteps>
IKV_INLINE void dot_group(const uint8_t* planes, const RowAddresses& values, Dots<kRows>& dots,
                          std::integer_sequence<int, kSteps...>) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    dots.high[r][0] = dots.high[r][1] = _mm512_setzero_si512();
    dots.low[r][0] = dots.low[r][1] = _mm512_setzero_si512();
  }
  (dot_step<kBits, kRows, kFirstStep + kSteps>(planes, values, dots), ...);
}

// Where the rows stand: values and sums of the first, at the chunk at hand.
struct Rows {
  const std::byte* values;
  const std::byte* sums;
  size_t stride;
};

template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel, int kRows, int kIndex>
IKV_INLINE void add_group(const uint8_t* chunk, const Rows& rows, const Header& header,
                          __m512 offset, __m512 acc[kRows][2]) {
  constexpr int kSteps = kGroup / 4;
  constexpr int kEntries = kChunkInputs / kGroup * kPanelOutputs;
  Dots<kRows> dots;
  dot_group<kBits, kRows, kIndex * kSteps>(chunk, RowAddresses(rows.values, rows.stride), dots,
                                           std::make_integer_sequence<int, kSteps>());
  const uint8_t* scales = chunk + kBits * 128;
  const uint8_t* mins = scales + kEntries * (kTwoLevel ? 1 : 2);
#pragma GCC unroll 2
  for (int c = 0; c < 2; ++c) {
    const int entry = kIndex * static_cast<int>(kPanelOutputs) + c * 16;
    const __m512 scale = table_entries<kTwoLevel>(scales, entry, header.scale[c]);
    const __m512 min = kHasMin ? table_entries<kTwoLevel>(mins, entry, header.min[c])
                               : _mm512_mul_ps(scale, offset);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m512i dot = _mm512_add_epi32(_mm512_slli_epi32(dots.high[r][c], 8), dots.low[r][c]);
      float sum;
      std::memcpy(&sum, rows.sums + static_cast<size_t>(r) * rows.stride + kIndex * sizeof(float),
                  sizeof(sum));
      acc[r][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, acc[r][c]);
      acc[r][c] = _mm512_fmadd_ps(_mm512_set1_ps(sum), min, acc[r][c]);
    }
  }
}

// kRows rows from `first` on.
template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel, int kRows>
void multiply_few_rows(const PanelProduct& p, size_t first) {
  constexpr size_t kTableBytes = kChunkInputs / kGroup * kPanelOutputs * (kTwoLevel ? 1 : 2);
  constexpr size_t kChunkBytes = kBits * 128 + kTableBytes * (kHasMin ? 2 : 1);
  const std::byte* record = p.rows.row(first);
  Rows rows = {record + row_values_at(p.rows.num_inputs),
               group_sums(record, p.rows.num_inputs, kGroup), p.rows.stride};
  const auto* chunk = reinterpret_cast<const uint8_t*>(p.panel);
  const __m512 offset = _mm512_set1_ps(-p.format->offset);
  const size_t run_chunks = kTwoLevel ? p.format->run_chunks : p.num_chunks;
  Header header{};
  __m512 acc[kRows][2];
  for (int r = 0; r < kRows; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  for (size_t run = 0; run < p.num_chunks; run += run_chunks) {
    if constexpr (kTwoLevel) {
      header = load_header<kHasMin>(chunk);
      chunk += p.format->header_bytes;
    }
    for (size_t c = 0; c < run_chunks; ++c) {
      prefetch<kChunkBytes>(chunk);
      add_group<kBits, kGroup, kHasMin, kTwoLevel, kRows, 0>(chunk, rows, header, offset, acc);
      if constexpr (kGroup == 16) {
        add_group<kBits, kGroup, kHasMin, kTwoLevel, kRows, 1>(chunk, rows, header, offset, acc);
      }
      chunk += kChunkBytes;
      rows.values += 2 * kChunkInputs;
      rows.sums += kChunkInputs / kGroup * sizeof(float);
    }
  }
  const Masks masks = output_masks(p.num_outputs);
  for (size_t r = 0; r < kRows; ++r) {
    const __m512 scale = result_scale(p.rows.row(first + r));
    float* out = p.out + (first + r) * p.out_stride;
    _mm512_mask_storeu_ps(out, masks.half[0], _mm512_mul_ps(acc[r][0], scale));
    _mm512_mask_storeu_ps(out + 16, masks.half[1], _mm512_mul_ps(acc[r][1], scale));
  }
}

// From so many rows on unpacking a panel first pays.
constexpr size_t kUnpackRows = 24;

struct FewRows {
  template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel>
  static void run(const PanelProduct& p) {
    size_t row = 0;
    size_t left = p.num_rows;
    // 5 rows are 3 + 2, not 4 + 1: a panel's second reading comes from the cache, but is not free.
    for (; left > 4; left -= left > 5 ? 4 : 3) {
      if (left > 5) {
        multiply_few_rows<kBits, kGroup, kHasMin, kTwoLevel, 4>(p, row);
        row += 4;
      } else {
        multiply_few_rows<kBits, kGroup, kHasMin, kTwoLevel, 3>(p, row);
        row += 3;
      }
    }
    if (left == 4) return multiply_few_rows<kBits, kGroup, kHasMin, kTwoLevel, 4>(p, row);
    if (left == 3) return multiply_few_rows<kBits, kGroup, kHasMin, kTwoLevel, 3>(p, row);
    if (left == 2) return multiply_few_rows<kBits, kGroup, kHasMin, kTwoLevel, 2>(p, row);
    multiply_few_rows<kBits, kGroup, kHasMin, kTwoLevel, 1>(p, row);
  }
};

void multiply_quantised(const PanelProduct& p) {
  if (p.num_rows >= kUnpackRows) return multiply_rows(p);
  run_format<FewRows>(p);
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
