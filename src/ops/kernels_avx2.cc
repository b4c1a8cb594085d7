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
constexpr size_t kUnpackRows = 8;

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

// Adds the products of one group: some rows times two octets of outputs.
template <int kGroup, int kRows>
IKV_INLINE void pair_dots(const uint8_t* codes, const RowAddresses& rows, __m256i dots[kRows][2]) {
  const __m256i even = _mm256_set1_epi16(0xFF);
#pragma GCC unroll 8
  for (int s = 0; s < kGroup / 4; ++s) {
    const __m256i four0 = load(codes + s * 128);
    const __m256i four1 = load(codes + s * 128 + 32);
    const __m256i w[2][2] = {{_mm256_and_si256(four0, even), _mm256_srli_epi16(four0, 8)},
                             {_mm256_and_si256(four1, even), _mm256_srli_epi16(four1, 8)}};
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        int32_t pair;
        std::memcpy(&pair, rows.row(r) + s * 8 + half * 4, sizeof(pair));
        const __m256i x = _mm256_set1_epi32(pair);
        dots[r][0] = _mm256_add_epi32(dots[r][0], _mm256_madd_epi16(w[0][half], x));
        dots[r][1] = _mm256_add_epi32(dots[r][1], _mm256_madd_epi16(w[1][half], x));
      }
      pin_sums(dots[r][0], dots[r][1]);
    }
  }
}

// Some rows times the outputs of the octets `octet` and `octet` + 1.
template <int kGroup, int kRows>
void run_octets(const TileRun& run, size_t octet) {
  const __m256i masks[2] = {output_mask(run.num_outputs, octet),
                            output_mask(run.num_outputs, octet + 1)};
  float* out = run.out + octet * kLanes;
  __m256 acc[kRows][2];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const float* row = out + static_cast<size_t>(r) * run.out_stride;
    acc[r][0] = run.first ? _mm256_setzero_ps() : _mm256_maskload_ps(row, masks[0]);
    acc[r][1] = run.first ? _mm256_setzero_ps() : _mm256_maskload_ps(row + kLanes, masks[1]);
  }
  const uint8_t* codes = run.block->codes + octet * 32;
  const float* scales = run.block->scales + octet * kLanes;
  const float* mins = run.block->mins + octet * kLanes;
  const std::byte* values = run.values;
  for (size_t g = 0; g < run.num_groups; ++g) {
    __m256i dots[kRows][2];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) dots[r][0] = dots[r][1] = _mm256_setzero_si256();
    pair_dots<kGroup, kRows>(codes, RowAddresses(values, run.stride), dots);
    const RowAddresses sums(run.sums + g * sizeof(float), run.stride);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      float sum;
      std::memcpy(&sum, sums.row(r), sizeof(sum));
#pragma GCC unroll 2
      for (size_t c = 0; c < 2; ++c) {
        const size_t entry = g * kPanelOutputs + c * kLanes;
        acc[r][c] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dots[r][c]), _mm256_load_ps(scales + entry),
                                    acc[r][c]);
        acc[r][c] = _mm256_fmadd_ps(_mm256_set1_ps(sum), _mm256_load_ps(mins + entry), acc[r][c]);
      }
    }
    codes += kGroup * kPanelOutputs;
    values += kGroup * 2;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    float* row = out + static_cast<size_t>(r) * run.out_stride;
    _mm256_maskstore_ps(row, masks[0], acc[r][0]);
    _mm256_maskstore_ps(row + kLanes, masks[1], acc[r][1]);
  }
}

template <int kGroup, int kRows>
void run_tile(const TileRun& run) {
  for (size_t octet = 0; octet * kLanes < run.num_outputs; octet += 2) {
    run_octets<kGroup, kRows>(run, octet);
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
