// AVX-512 with VNNI, several rows: a panel is unpacked once, then multiplied with tile after tile
// of rows.
#if defined(__x86_64__)
#include "ops/kernels_avx512-inl.h"

namespace ikv::avx512 {
namespace {

// Inputs of a block of an unpacked panel: codes, scales and minima (36 KiB) share the first-level
// cache with the rows of a tile.
constexpr size_t kBlockChunks = 24;
// 6 rows x 32 outputs: 12 sums of integers and 12 of floats in registers.
constexpr size_t kTileRows = 6;

struct alignas(64) UnpackedBlock {
  uint8_t codes[kBlockChunks * kChunkCodes];
  float scales[kBlockChunks * 2 * kPanelOutputs];
  float mins[kBlockChunks * 2 * kPanelOutputs];
};

template <int kBits, int... kVectors>
IKV_INLINE void unpack_codes(const uint8_t* planes, uint8_t* codes,
                             std::integer_sequence<int, kVectors...>) {
  (_mm512_store_si512(codes + kVectors * 64, code_vector<kBits, kVectors>(planes)), ...);
}

// Chunks first .. first + count - 1 of a panel.
template <int kBits, bool kHasMin, bool kTwoLevel>
void unpack_block(const PanelProduct& p, size_t first, size_t count, UnpackedBlock& block) {
  const PackedFormat& format = *p.format;
  const size_t entries = format.groups_a_chunk() * kPanelOutputs;
  const __m512 offset = _mm512_set1_ps(-format.offset);
  for (size_t c = 0; c < count; ++c) {
    const auto* chunk = reinterpret_cast<const uint8_t*>(p.panel + format.chunk_at(first + c));
    prefetch<kBits * 128 + 128>(chunk);
    unpack_codes<kBits>(chunk, block.codes + c * kChunkCodes,
                        std::make_integer_sequence<int, 16>());
    Header header{};
    if constexpr (kTwoLevel) {
      const auto* at = reinterpret_cast<const uint8_t*>(p.panel + format.header_at(first + c));
      header = load_header<kHasMin>(at);
    }
    const uint8_t* scales = chunk + format.plane_bytes;
    const uint8_t* mins = scales + entries * (kTwoLevel ? 1 : 2);
    for (size_t i = 0; i < entries; i += 16) {
      const int entry = static_cast<int>(i);
      const __m512 scale = table_entries<kTwoLevel>(scales, entry, header.scale[i / 16 % 2]);
      const __m512 min = kHasMin ? table_entries<kTwoLevel>(mins, entry, header.min[i / 16 % 2])
                                 : _mm512_mul_ps(scale, offset);
      _mm512_store_ps(block.scales + c * entries + i, scale);
      _mm512_store_ps(block.mins + c * entries + i, min);
    }
  }
}

// A run of chunks for a tile of rows; its first and last run start and finish the sums, which wait
// in `out` in between.
struct TileRun {
  const UnpackedBlock* block;
  size_t num_groups;
  const std::byte* values;  // of the first row, at the run's first chunk
  const std::byte* sums;    // likewise
  size_t stride;            // bytes from row to row of both
  float* out;
  size_t out_stride;
  Masks masks;
  bool first;
};

// Adds the products of one group with the high (kPart 0) or low parts of the rows.
template <int kRows, int kSteps, int kPart>
IKV_INLINE void tile_dots(const uint8_t* codes, const RowAddresses& rows, __m512i dots[kRows][2]) {
#pragma GCC unroll 8
  for (int s = 0; s < kSteps; ++s) {
    // Opaque, since GCC otherwise loads all vectors of a group ahead, keeps them from the high
    // parts to the low ones and puts the sums in memory.
    asm volatile("" : "+r"(codes));
    const __m512i w0 = load(codes + s * 128);
    const __m512i w1 = load(codes + s * 128 + 64);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      std::memcpy(&four, rows.row(r) + s * 8 + kPart * 4, sizeof(four));
      const __m512i x = _mm512_set1_epi32(four);
      dots[r][0] = _mm512_dpbusd_epi32(dots[r][0], w0, x);
      dots[r][1] = _mm512_dpbusd_epi32(dots[r][1], w1, x);
    }
  }
}

template <int kGroup, int kRows>
void run_tile(const TileRun& run) {
  __m512 acc[kRows][2];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const float* out = run.out + static_cast<size_t>(r) * run.out_stride;
    acc[r][0] = run.first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(run.masks.half[0], out);
    acc[r][1] =
        run.first ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(run.masks.half[1], out + 16);
  }
  const uint8_t* codes = run.block->codes;
  const float* scales = run.block->scales;
  const std::byte* values = run.values;
  const size_t stride = run.stride;
  for (size_t g = 0; g < run.num_groups; ++g) {
    __m512i dots[kRows][2];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) dots[r][0] = dots[r][1] = _mm512_setzero_si512();
    const RowAddresses rows(values, stride);
    tile_dots<kRows, kGroup / 4, 0>(codes, rows, dots);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      dots[r][0] = _mm512_slli_epi32(dots[r][0], 8);
      dots[r][1] = _mm512_slli_epi32(dots[r][1], 8);
    }
    tile_dots<kRows, kGroup / 4, 1>(codes, rows, dots);
    constexpr size_t kMinsAt = sizeof(UnpackedBlock::scales) / sizeof(float);
    const RowAddresses sums(run.sums + g * sizeof(float), stride);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float sum;
      std::memcpy(&sum, sums.row(r), sizeof(sum));
      const __m512 x = _mm512_set1_ps(sum);
#pragma GCC unroll 2
      for (int c = 0; c < 2; ++c) {
        const float* table = scales + c * 16;
        acc[r][c] =
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[r][c]), _mm512_load_ps(table), acc[r][c]);
        acc[r][c] = _mm512_fmadd_ps(x, _mm512_load_ps(table + kMinsAt), acc[r][c]);
      }
    }
    codes += kGroup * kPanelOutputs;
    scales += kPanelOutputs;
    values += kGroup * 2;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    float* out = run.out + static_cast<size_t>(r) * run.out_stride;
    _mm512_mask_storeu_ps(out, run.masks.half[0], acc[r][0]);
    _mm512_mask_storeu_ps(out + 16, run.masks.half[1], acc[r][1]);
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
    case 4:
      return run_tile<kGroup, 4>(run);
    case 5:
      return run_tile<kGroup, 5>(run);
    default:
      return run_tile<kGroup, 6>(run);
  }
}

void scale_results(const PanelProduct& p, const Masks& masks) {
  for (size_t r = 0; r < p.num_rows; ++r) {
    const __m512 scale = result_scale(p.rows.row(r));
    for (int c = 0; c < 2; ++c) {
      float* out = p.out + r * p.out_stride + c * 16;
      const __m512 acc = _mm512_maskz_loadu_ps(masks.half[c], out);
      _mm512_mask_storeu_ps(out, masks.half[c], _mm512_mul_ps(acc, scale));
    }
  }
}

template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel>
void multiply_blocks(const PanelProduct& p) {
  UnpackedBlock block;
  const Masks masks = output_masks(p.num_outputs);
  const size_t num_blocks = (p.num_chunks + kBlockChunks - 1) / kBlockChunks;
  const std::byte* values = p.rows.data + row_values_at(p.rows.num_inputs);
  const std::byte* sums = group_sums(p.rows.data, p.rows.num_inputs, kGroup);
  for (size_t b = 0; b < num_blocks; ++b) {
    const size_t first = p.num_chunks * b / num_blocks;
    const size_t count = p.num_chunks * (b + 1) / num_blocks - first;
    unpack_block<kBits, kHasMin, kTwoLevel>(p, first, count, block);
    const size_t num_tiles = (p.num_rows + kTileRows - 1) / kTileRows;
    for (size_t t = 0; t < num_tiles; ++t) {
      const size_t row = p.num_rows * t / num_tiles;
      const size_t groups_a_chunk = kChunkInputs / kGroup;
      const TileRun run = {
          .block = &block,
          .num_groups = count * groups_a_chunk,
          .values = values + row * p.rows.stride + first * kChunkInputs * 2,
          .sums = sums + row * p.rows.stride + first * groups_a_chunk * sizeof(float),
          .stride = p.rows.stride,
          .out = p.out + row * p.out_stride,
          .out_stride = p.out_stride,
          .masks = masks,
          .first = b == 0};
      run_rows<kGroup>(run, p.num_rows * (t + 1) / num_tiles - row);
    }
  }
  scale_results(p, masks);
}

struct ManyRows {
  template <int kBits, int kGroup, bool kHasMin, bool kTwoLevel>
  static void run(const PanelProduct& p) {
    multiply_blocks<kBits, kGroup, kHasMin, kTwoLevel>(p);
  }
};

}  // namespace

void multiply_rows(const PanelProduct& p) {
  run_format<ManyRows>(p);
}

}  // namespace ikv::avx512

IKV_TARGET_END
#endif
