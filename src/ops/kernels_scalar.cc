// Plain loops: the definition that every other set must equal, and what runs where none is written.
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

void add_chunk(const PanelProduct& p, const UnpackedChunk& chunk, const std::byte* record,
               size_t index, std::array<float, kPanelOutputs>& acc) {
  const size_t group = p.format->group_inputs;
  const size_t num_inputs = p.rows.num_inputs;
  const auto* values =
      reinterpret_cast<const int16_t*>(record + row_values_at(num_inputs)) + index * kChunkInputs;
  const auto* sums = reinterpret_cast<const float*>(
      record + (group == 16 ? kRowSumsAt : row_sums32_at(num_inputs)));
  for (size_t g = 0; g < kChunkInputs / group; ++g) {
    const float sum = sums[index * (kChunkInputs / group) + g];
    for (size_t o = 0; o < p.num_outputs; ++o) {
      int32_t dot = 0;
      for (size_t i = g * group; i < (g + 1) * group; ++i) {
        dot += chunk.codes[code_place(o, i)] * values[i];
      }
      acc[o] = std::fma(static_cast<float>(dot), chunk.scales[g * kPanelOutputs + o], acc[o]);
      acc[o] = std::fma(sum, chunk.mins[g * kPanelOutputs + o], acc[o]);
    }
  }
}

void multiply_quantised(const PanelProduct& p) {
  UnpackedChunk chunk;
  for (size_t r = 0; r < p.num_rows; ++r) {
    std::array<float, kPanelOutputs> acc{};
    for (size_t c = 0; c < p.num_chunks; ++c) {
      unpack_chunk(*p.format, p.panel, c, chunk);
      add_chunk(p, chunk, p.rows.row(r), c, acc);
    }
    float scale;
    std::memcpy(&scale, p.rows.row(r), sizeof(scale));
    for (size_t o = 0; o < p.num_outputs; ++o) p.out[r * p.out_stride + o] = acc[o] * scale;
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
