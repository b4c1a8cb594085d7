// Plain loops: the definition that every other set must equal, and what runs where none is written.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "ops/kernels.h"
#include "ops/unpack_chunk.h"
#include "quant/dequantise.h"

namespace ikv {
namespace {

void quantise_row(const float* x, size_t num_inputs, std::byte* record) {
  uint32_t largest_bits = 0;
  for (size_t i = 0; i < num_inputs; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu;
    if (bits > largest_bits) largest_bits = bits;
  }
  const RowScale scale = row_scale(largest_bits);
  std::memcpy(record, &scale.scale, sizeof(float));
  auto* sums16 = reinterpret_cast<float*>(record + kRowSumsAt);
  auto* sums32 = reinterpret_cast<float*>(record + row_sums32_at(num_inputs));
  auto* values = reinterpret_cast<int16_t*>(record + row_values_at(num_inputs));
  for (size_t first = 0; first < num_inputs; first += 16) {
    int sum = 0;
    for (size_t i = first; i < first + 16; ++i) {
      const int value =
          scale.inverse == 0.0f ? 0 : static_cast<int>(std::nearbyint(x[i] * scale.inverse));
      values[i] = static_cast<int16_t>(value);
      sum += value;
    }
    const float whole = static_cast<float>(sum);
    sums16[first / 16] = whole;
    sums32[first / 32] = first % 32 == 0 ? whole : sums32[first / 32] + whole;
  }
}

// Chunks that are unpacked at a time: 16 KiB of codes.
constexpr size_t kBlockChunks = 8;
constexpr size_t kBlockGroups = kBlockChunks * 2;

// Codes as 16-bit numbers, outputs side by side, which compilers turn into vectors on any machine.
struct Block {
  int16_t codes[kBlockChunks * kChunkInputs][kPanelOutputs];
  float scales[kBlockGroups][kPanelOutputs];
  float mins[kBlockGroups][kPanelOutputs];
};

void unpack_block(const PanelProduct& p, size_t first, size_t count, Block& block) {
  UnpackedChunk chunk;
  const size_t groups = p.format->groups_a_chunk();
  for (size_t c = 0; c < count; ++c) {
    unpack_chunk(*p.format, p.panel, first + c, chunk);
    for (size_t i = 0; i < kChunkInputs; ++i) {
      for (size_t o = 0; o < kPanelOutputs; ++o) {
        block.codes[c * kChunkInputs + i][o] = chunk.codes[code_place(o, i)];
      }
    }
    const size_t bytes = groups * kPanelOutputs * sizeof(float);
    std::memcpy(block.scales[c * groups], chunk.scales, bytes);
    std::memcpy(block.mins[c * groups], chunk.mins, bytes);
  }
}

// Adds `num_groups` groups to the sums of one row.
void add_groups(const Block& block, size_t group_inputs, size_t num_groups, const int16_t* values,
                const float* sums, float* acc) {
  for (size_t g = 0; g < num_groups; ++g) {
    int32_t dots[kPanelOutputs] = {};
    for (size_t i = g * group_inputs; i < (g + 1) * group_inputs; ++i) {
      const int16_t value = values[i];
      for (size_t o = 0; o < kPanelOutputs; ++o) dots[o] += block.codes[i][o] * value;
    }
    for (size_t o = 0; o < kPanelOutputs; ++o) {
      acc[o] = std::fma(static_cast<float>(dots[o]), block.scales[g][o], acc[o]);
      acc[o] = std::fma(sums[g], block.mins[g][o], acc[o]);
    }
  }
}

void multiply_quantised(const PanelProduct& p) {
  Block block;
  const size_t num_inputs = p.rows.num_inputs;
  const size_t group = p.format->group_inputs;
  const size_t groups_a_chunk = p.format->groups_a_chunk();
  const size_t sums_at = group == 16 ? kRowSumsAt : row_sums32_at(num_inputs);
  for (size_t first = 0; first < p.num_chunks; first += kBlockChunks) {
    const size_t count = std::min(kBlockChunks, p.num_chunks - first);
    const bool last = first + count == p.num_chunks;
    unpack_block(p, first, count, block);
    for (size_t r = 0; r < p.num_rows; ++r) {
      const std::byte* record = p.rows.row(r);
      const auto* values = reinterpret_cast<const int16_t*>(record + row_values_at(num_inputs));
      const auto* sums = reinterpret_cast<const float*>(record + sums_at);
      float* out = p.out + r * p.out_stride;
      float acc[kPanelOutputs] = {};
      if (first > 0) std::copy_n(out, p.num_outputs, acc);
      add_groups(block, group, count * groups_a_chunk, values + first * kChunkInputs,
                 sums + first * groups_a_chunk, acc);
      float scale = 1.0f;
      if (last) std::memcpy(&scale, record, sizeof(scale));
      for (size_t o = 0; o < p.num_outputs; ++o) out[o] = acc[o] * scale;
    }
  }
}

void multiply_floats(const PanelProduct& p) {
  std::array<float, kPanelOutputs> weights;
  for (size_t r = 0; r < p.num_rows; ++r) {
    std::array<float, kPanelOutputs> acc{};
    for (size_t i = 0; i < p.num_chunks; ++i) {
      dequantise(p.format->type, p.panel + i * p.format->chunk_bytes, kPanelOutputs,
                 weights.data());
      const float x = p.x[r * p.num_chunks + i];
      for (size_t o = 0; o < p.num_outputs; ++o) acc[o] = std::fma(weights[o], x, acc[o]);
    }
    for (size_t o = 0; o < p.num_outputs; ++o) p.out[r * p.out_stride + o] = acc[o];
  }
}

}  // namespace

const MatmulKernels& scalar_kernels() {
  static constexpr MatmulKernels kKernels = {CpuIsa::kScalar, quantise_row, multiply_quantised,
                                             multiply_floats};
  return kKernels;
}

}  // namespace ikv
