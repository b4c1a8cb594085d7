// Kernels for AVX2 without 8-bit dots: codes become 16-bit numbers, whose products with the 16-bit
// values are added in pairs without overflow. Intrinsics for the same sums as the other sets.
#include "ops/kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "ops/target_pragmas.h"

IKV_TARGET_BEGIN("avx2,fma,f16c")

#define IKV_INLINE inline __attribute__((always_inline))

namespace ikv {
namespace {

constexpr size_t kBlockChunks = 16;
constexpr size_t kTileRows = 4;
constexpr size_t kLanes = 8;
constexpr size_t kOctets = kPanelOutputs / kLanes;

struct alignas(64) UnpackedBlock {
  uint8_t codes[kBlockChunks * kChunkCodes];
  float scales[kBlockChunks * 2 * kPanelOutputs];
  float mins[kBlockChunks * 2 * kPanelOutputs];
};

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

// ---- unpacking ----

// Adds a plane of `width` bits to the codes, moved up by `first_bit`.
void add_plane(const uint8_t* plane, int width, int first_bit, uint8_t* codes) {
  const size_t per_byte = 8 / static_cast<size_t>(width);
  const __m256i mask = _mm256_set1_epi8(static_cast<char>((1 << width) - 1));
  const __m128i up = _mm_cvtsi32_si128(first_bit);
  for (size_t vector = 0; vector < 16; ++vector) {
    const __m128i down = _mm_cvtsi32_si128(static_cast<int>(vector % per_byte) * width);
    for (size_t half = 0; half < 64; half += 32) {
      const __m256i bytes = load(plane + vector / per_byte * 64 + half);
      const __m256i part = _mm256_and_si256(_mm256_srl_epi16(bytes, down), mask);
      auto* out = reinterpret_cast<__m256i*>(codes + vector * 64 + half);
      const __m256i lower = first_bit == 0 ? _mm256_setzero_si256() : _mm256_load_si256(out);
      _mm256_store_si256(out, _mm256_or_si256(lower, _mm256_sll_epi16(part, up)));
    }
  }
}

IKV_INLINE __m256 load_bytes(const uint8_t* p) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}

// A table of scales or minima: halves, or bytes times the header's halves.
void unpack_table(const PackedFormat& format, const uint8_t* header, const uint8_t* table,
                  float* out) {
  const size_t entries = format.groups_a_chunk() * kPanelOutputs;
  for (size_t i = 0; i < entries; i += kLanes) {
    const __m256 value =
        format.two_level
            ? _mm256_mul_ps(load_halves(header + i % kPanelOutputs * 2), load_bytes(table + i))
            : load_halves(table + 2 * i);
    _mm256_store_ps(out + i, value);
  }
}

// Chunk `index` of a panel to place `to` of the block.
void unpack_chunk(const PackedFormat& format, const std::byte* panel, size_t index, size_t to,
                  UnpackedBlock& block) {
  const auto* header = reinterpret_cast<const uint8_t*>(panel + format.header_at(index));
  const auto* plane = reinterpret_cast<const uint8_t*>(panel + format.chunk_at(index));
  const uint8_t* tables = plane + format.plane_bytes;
  int first_bit = 0;
  for (int width = 8; width >= 1; width /= 2) {
    if ((format.bits & width) == 0) continue;
    add_plane(plane, width, first_bit, block.codes + to * kChunkCodes);
    plane += kChunkCodes * static_cast<size_t>(width) / 8;
    first_bit += width;
  }
  const size_t entries = format.groups_a_chunk() * kPanelOutputs;
  float* scales = block.scales + to * entries;
  float* mins = block.mins + to * entries;
  unpack_table(format, header, tables, scales);
  if (format.has_min) {
    unpack_table(format, header + 2 * kPanelOutputs, tables + entries * (format.two_level ? 1 : 2),
                 mins);
    return;
  }
  for (size_t i = 0; i < entries; ++i) mins[i] = -format.offset * scales[i];
}

// ---- products ----

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

template <int kGroup>
void multiply_rows(const PanelProduct& p) {
  UnpackedBlock block;
  constexpr size_t kGroupsAChunk = kChunkInputs / kGroup;
  const size_t sums_at = kGroup == 16 ? kRowSumsAt : row_sums32_at(p.rows.num_inputs);
  const size_t values_at = row_values_at(p.rows.num_inputs);
  for (size_t first = 0; first < p.num_chunks; first += kBlockChunks) {
    const size_t count = p.num_chunks - first < kBlockChunks ? p.num_chunks - first : kBlockChunks;
    for (size_t c = 0; c < count; ++c) unpack_chunk(*p.format, p.panel, first + c, c, block);
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

void multiply_quantised(const PanelProduct& p) {
  if (p.format->group_inputs == 16) return multiply_rows<16>(p);
  multiply_rows<32>(p);
}

// ---- activations ----

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

// ---- float weights ----

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

void multiply_floats(const PanelProduct& p) {
  if (p.format->type == WeightType::kF32) return multiply_float_rows<WeightType::kF32>(p);
  if (p.format->type == WeightType::kF16) return multiply_float_rows<WeightType::kF16>(p);
  multiply_float_rows<WeightType::kBF16>(p);
}

}  // namespace

const MatmulKernels& avx2_kernels() {
  static constexpr MatmulKernels kKernels = {CpuIsa::kAvx2, quantise_row, multiply_quantised,
                                             multiply_floats};
  return kKernels;
}

}  // namespace ikv

IKV_TARGET_END
#endif
