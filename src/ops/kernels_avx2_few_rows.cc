// AVX2, few rows, by ones and twos: weights straight from memory.
#if defined(__x86_64__)
#include "ops/kernels_avx2-inl.h"

namespace ikv::avx2 {
namespace {

// Where the rows stand: values and sums of the first, at the chunk at hand.
struct Rows {
  const std::byte* values;
  const std::byte* sums;
  size_t stride;
};

// The four inputs of a step times an octet of outputs.
template <int kRows>
IKV_INLINE void dot_octet(__m256i codes, const __m256i values[kRows][2], __m256i dots[kRows]) {
  const __m256i w02 = _mm256_and_si256(codes, _mm256_set1_epi16(0xFF));
  const __m256i w13 = _mm256_srli_epi16(codes, 8);
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
    const __m256i a = _mm256_madd_epi16(w02, values[r][0]);
    const __m256i b = _mm256_madd_epi16(w13, values[r][1]);
    dots[r] = _mm256_add_epi32(dots[r], _mm256_add_epi32(a, b));
  }
}

template <int kBits, int kRows, int kStep>
IKV_INLINE void dot_step(const uint8_t* planes, const Rows& rows, __m256i dots[kOctets][kRows]) {
  __m256i values[kRows][2];
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
    int32_t pairs[2];
    std::memcpy(pairs, rows.values + static_cast<size_t>(r) * rows.stride + kStep * 8,
                sizeof(pairs));
    values[r][0] = _mm256_set1_epi32(pairs[0]);
    values[r][1] = _mm256_set1_epi32(pairs[1]);
  }
  dot_octet<kRows>(code_vector<kBits, 2 * kStep>(planes), values, dots[0]);
  dot_octet<kRows>(code_vector<kBits, 2 * kStep>(planes + 32), values, dots[1]);
  dot_octet<kRows>(code_vector<kBits, 2 * kStep + 1>(planes), values, dots[2]);
  dot_octet<kRows>(code_vector<kBits, 2 * kStep + 1>(planes + 32), values, dots[3]);
#pragma GCC unroll 2
  for (int r = 0; r < kRows; ++r) {
    pin_sums(dots[0][r], dots[1][r]);
    pin_sums(dots[2][r], dots[3][r]);
  }
}

template <int kBits, int kRows, int kFirstStep, int... kSteps>
IKV_INLINE void dot_group(const uint8_t* planes, const Rows& rows, __m256i dots[kOctets][kRows],
                          std::integer_sequence<int, kSteps...>) {
#pragma GCC unroll 4
  for (size_t o = 0; o < kOctets; ++o) {
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) dots[o][r] = _mm256_setzero_si256();
  }
  (dot_step<kBits, kRows, kFirstStep + kSteps>(planes, rows, dots), ...);
}

template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel, int kRows, int kIndex>
IKV_INLINE void add_group(const uint8_t* header, const uint8_t* chunk, const Rows& rows,
                          __m256 offset, __m256 acc[kOctets][kRows]) {
  constexpr int kSteps = kGroup / 4;
  constexpr size_t kEntries = kChunkInputs / kGroup * kPanelOutputs;
  __m256i dots[kOctets][kRows];
  dot_group<kBits, kRows, kIndex * kSteps>(chunk, rows, dots,
                                           std::make_integer_sequence<int, kSteps>());
  const uint8_t* scales = chunk + kBits * 128;
  const uint8_t* mins = scales + kEntries * (kTwoLevel ? 1 : 2);
#pragma GCC unroll 4
  for (size_t o = 0; o < kOctets; ++o) {
    const size_t entry = kIndex * kPanelOutputs + o * kLanes;
    const __m256 scale = table_entries<kTwoLevel>(header, scales, entry);
    const __m256 min = kHasMin ? table_entries<kTwoLevel>(header + 2 * kPanelOutputs, mins, entry)
                               : _mm256_mul_ps(scale, offset);
#pragma GCC unroll 2
    for (int r = 0; r < kRows; ++r) {
      float sum;
      std::memcpy(&sum, rows.sums + static_cast<size_t>(r) * rows.stride + kIndex * sizeof(float),
                  sizeof(sum));
      acc[o][r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[o][r]), scale, acc[o][r]);
      acc[o][r] = _mm256_fmadd_ps(_mm256_set1_ps(sum), min, acc[o][r]);
    }
  }
}

template <size_t kBytes>
IKV_INLINE void prefetch(const uint8_t* p) {
  constexpr size_t kAhead = 3072;
  for (size_t line = 0; line < kBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(p + kAhead + line), _MM_HINT_T0);
  }
}

// kRows rows from `first` on.
template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel, int kRows>
void multiply_panel(const PanelProduct& p, size_t first) {
  constexpr size_t kTableBytes = kChunkInputs / kGroup * kPanelOutputs * (kTwoLevel ? 1 : 2);
  constexpr size_t kChunkBytes = kBits * 128 + kTableBytes * (kHasMin ? 2 : 1);
  const size_t num_inputs = p.rows.num_inputs;
  const std::byte* record = p.rows.row(first);
  Rows rows = {record + row_values_at(num_inputs),
               record + (kGroup == 16 ? kRowSumsAt : row_sums32_at(num_inputs)), p.rows.stride};
  const __m256 offset = _mm256_set1_ps(-p.format->offset);
  const auto* panel = reinterpret_cast<const uint8_t*>(p.panel);
  __m256 acc[kOctets][kRows];
  for (size_t o = 0; o < kOctets; ++o) {
    for (int r = 0; r < kRows; ++r) acc[o][r] = _mm256_setzero_ps();
  }
  for (size_t c = 0; c < p.num_chunks; ++c) {
    const uint8_t* header = panel + p.format->header_at(c);
    const uint8_t* chunk = kTwoLevel ? panel + p.format->chunk_at(c) : panel + c * kChunkBytes;
    prefetch<kChunkBytes>(chunk);
    add_group<kBits, kGroup, kHasMin, kTwoLevel, kRows, 0>(header, chunk, rows, offset, acc);
    if constexpr (kGroup == 16) {
      add_group<kBits, kGroup, kHasMin, kTwoLevel, kRows, 1>(header, chunk, rows, offset, acc);
    }
    rows.values += 2 * kChunkInputs;
    rows.sums += kChunkInputs / kGroup * sizeof(float);
  }
  for (int r = 0; r < kRows; ++r) {
    const size_t row = first + static_cast<size_t>(r);
    float scale;
    std::memcpy(&scale, p.rows.row(row), sizeof(scale));
    for (size_t o = 0; o * kLanes < p.num_outputs; ++o) {
      _mm256_maskstore_ps(p.out + row * p.out_stride + o * kLanes, output_mask(p.num_outputs, o),
                          _mm256_mul_ps(acc[o][r], _mm256_set1_ps(scale)));
    }
  }
}

struct FewRows {
  template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel>
  static void run(const PanelProduct& p) {
    size_t row = 0;
    for (; row + 2 <= p.num_rows; row += 2) {
      multiply_panel<kBits, kGroup, kHasMin, kTwoLevel, 2>(p, row);
    }
    if (row < p.num_rows) multiply_panel<kBits, kGroup, kHasMin, kTwoLevel, 1>(p, row);
  }
};

}  // namespace

void multiply_few_rows(const PanelProduct& p) {
  run_format<FewRows>(p);
}

}  // namespace ikv::avx2

IKV_TARGET_END
#endif
