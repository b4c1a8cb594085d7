// AVX2 without 8-bit dots: codes become 16-bit numbers, whose products with the 16-bit values are
// added in pairs without overflow. Several rows: a panel is unpacked once, then multiplied with
// tile after tile of rows. Intrinsics for the same sums as the other sets.
#if defined(__x86_64__)
#include "ops/kernels_avx2-inl.h"

namespace ikv {
namespace avx2 {
namespace {

constexpr size_t kBlockChunks = 16;
constexpr size_t kTileRows = 4;
// From so many rows on unpacking a panel first pays.
constexpr size_t kUnpackRows = 12;

struct alignas(64) UnpackedBlock {
  uint8_t codes[kBlockChunks * kChunkCodes];
  float scales[kBlockChunks * 2 * kPanelOutputs];
  float mins[kBlockChunks * 2 * kPanelOutputs];
};

template <int kBits, int... kVectors>
IKV_INLINE void unpack_codes(const uint8_t* planes, uint8_t* codes,
                             std::integer_sequence<int, kVectors...>) {
  for (size_t half = 0; half < 64; half += 32) {
    (_mm256_store_si256(reinterpret_cast<__m256i*>(codes + kVectors * 64 + half),
                        code_vector<kBits, kVectors>(planes + half)),
     ...);
  }
}

// Chunks first .. first + count - 1 of a panel.
template <int kBits, bool kHasMin, bool kTwoLevel>
void unpack_block(const PanelProduct& p, size_t first, size_t count, UnpackedBlock& block) {
  const PackedFormat& format = *p.format;
  const size_t entries = format.groups_a_chunk() * kPanelOutputs;
  const __m256 offset = _mm256_set1_ps(-format.offset);
  for (size_t c = 0; c < count; ++c) {
    const auto* header = reinterpret_cast<const uint8_t*>(p.panel + format.header_at(first + c));
    const auto* chunk = reinterpret_cast<const uint8_t*>(p.panel + format.chunk_at(first + c));
    unpack_codes<kBits>(chunk, block.codes + c * kChunkCodes,
                        std::make_integer_sequence<int, 16>());
    const uint8_t* scales = chunk + format.plane_bytes;
    const uint8_t* mins = scales + entries * (kTwoLevel ? 1 : 2);
    for (size_t i = 0; i < entries; i += kLanes) {
      const __m256 scale = table_entries<kTwoLevel>(header, scales, i);
      const __m256 min = kHasMin ? table_entries<kTwoLevel>(header + 2 * kPanelOutputs, mins, i)
                                 : _mm256_mul_ps(scale, offset);
      _mm256_store_ps(block.scales + c * entries + i, scale);
      _mm256_store_ps(block.mins + c * entries + i, min);
    }
  }
}

struct TileRun {
  const UnpackedBlock* block;
  size_t num_groups;
  const std::byte* values;  // of the first row, at the run's first chunk
  const std::byte* sums;    // likewise
  size_t stride;            // bytes from row to row of both
  float* out;
  size_t out_stride;
  size_t num_outputs;
  bool first;
};

// Some rows times one octet of outputs.
template <int kGroup, int kRows>
IKV_INLINE void run_octet(const TileRun& run, size_t octet) {
  const __m256i mask = output_mask(run.num_outputs, octet);
  float* out = run.out + octet * kLanes;
  __m256 acc[kRows];
  for (int r = 0; r < kRows; ++r) {
    acc[r] = run.first ? _mm256_setzero_ps()
                       : _mm256_maskload_ps(out + static_cast<size_t>(r) * run.out_stride, mask);
  }
  const __m256i even = _mm256_set1_epi16(0xFF);
  const uint8_t* codes = run.block->codes + octet * 32;
  const std::byte* values = run.values;
  for (size_t g = 0; g < run.num_groups; ++g) {
    __m256i dots[kRows];
    for (int r = 0; r < kRows; ++r) dots[r] = _mm256_setzero_si256();
    for (int s = 0; s < kGroup / 4; ++s) {
      const __m256i four = load(codes + s * 128);
      const __m256i w02 = _mm256_and_si256(four, even);
      const __m256i w13 = _mm256_srli_epi16(four, 8);
      for (int r = 0; r < kRows; ++r) {
        int32_t pairs[2];
        std::memcpy(pairs, values + static_cast<size_t>(r) * run.stride + s * 8, sizeof(pairs));
        const __m256i a = _mm256_madd_epi16(w02, _mm256_set1_epi32(pairs[0]));
        const __m256i b = _mm256_madd_epi16(w13, _mm256_set1_epi32(pairs[1]));
        dots[r] = _mm256_add_epi32(dots[r], _mm256_add_epi32(a, b));
      }
    }
    const __m256 scale = _mm256_load_ps(run.block->scales + g * kPanelOutputs + octet * kLanes);
    const __m256 min = _mm256_load_ps(run.block->mins + g * kPanelOutputs + octet * kLanes);
    for (int r = 0; r < kRows; ++r) {
      float sum;
      std::memcpy(&sum, run.sums + static_cast<size_t>(r) * run.stride + g * sizeof(float),
                  sizeof(sum));
      acc[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r]), scale, acc[r]);
      acc[r] = _mm256_fmadd_ps(_mm256_set1_ps(sum), min, acc[r]);
    }
    codes += kGroup * kPanelOutputs;
    values += kGroup * 2;
  }
  for (int r = 0; r < kRows; ++r) {
    _mm256_maskstore_ps(out + static_cast<size_t>(r) * run.out_stride, mask, acc[r]);
  }
}

template <int kGroup, int kRows>
void run_tile(const TileRun& run) {
  for (size_t octet = 0; octet * kLanes < run.num_outputs; ++octet) {
    run_octet<kGroup, kRows>(run, octet);
  }
}

template <int kGroup>
void run_rows(const TileRun& run, size_t num_rows) {
  switch (num_rows) {
    case 1:
      return run_tile<kGroup, 1>(run);
    case 2:
      return run_tile<kGroup, 2>(run);
    case 3:
      return run_tile<kGroup, 3>(run);
    default:
      return run_tile<kGroup, 4>(run);
  }
}

void scale_results(const PanelProduct& p) {
  for (size_t r = 0; r < p.num_rows; ++r) {
    float scale;
    std::memcpy(&scale, p.rows.row(r), sizeof(scale));
    float* out = p.out + r * p.out_stride;
    for (size_t o = 0; o < p.num_outputs; ++o) out[o] *= scale;
  }
}

template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel>
void multiply_blocks(const PanelProduct& p) {
  UnpackedBlock block;
  constexpr size_t kGroupsAChunk = kChunkInputs / kGroup;
  const size_t sums_at = kGroup == 16 ? kRowSumsAt : row_sums32_at(p.rows.num_inputs);
  const size_t values_at = row_values_at(p.rows.num_inputs);
  for (size_t first = 0; first < p.num_chunks; first += kBlockChunks) {
    const size_t count = p.num_chunks - first < kBlockChunks ? p.num_chunks - first : kBlockChunks;
    unpack_block<kBits, kHasMin, kTwoLevel>(p, first, count, block);
    for (size_t row = 0; row < p.num_rows; row += kTileRows) {
      const std::byte* record = p.rows.row(row);
      const TileRun run = {.block = &block,
                           .num_groups = count * kGroupsAChunk,
                           .values = record + values_at + first * kChunkInputs * 2,
                           .sums = record + sums_at + first * kGroupsAChunk * sizeof(float),
                           .stride = p.rows.stride,
                           .out = p.out + row * p.out_stride,
                           .out_stride = p.out_stride,
                           .num_outputs = p.num_outputs,
                           .first = first == 0};
      run_rows<kGroup>(run, p.num_rows - row < kTileRows ? p.num_rows - row : kTileRows);
    }
  }
  scale_results(p);
}

struct ManyRows {
  template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel>
  static void run(const PanelProduct& p) {
    multiply_blocks<kBits, kGroup, kHasMin, kTwoLevel>(p);
  }
};

void multiply_quantised(const PanelProduct& p) {
  if (p.num_rows < kUnpackRows) return multiply_few_rows(p);
  run_format<ManyRows>(p);
}

}  // namespace
}  // namespace avx2

const MatmulKernels& avx2_kernels() {
  static constexpr MatmulKernels kKernels = {CpuIsa::kAvx2, avx2::quantise_row,
                                             avx2::multiply_quantised, avx2::multiply_floats};
  return kKernels;
}

}  // namespace ikv

IKV_TARGET_END
#endif
