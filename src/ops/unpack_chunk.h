// One chunk of a panel as bytes and floats, in plain code; internal to ops.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/packed_format.h"
#include "quant/dequantise.h"

namespace ikv {

struct UnpackedChunk {
  uint8_t codes[kChunkCodes];  // in the order of code_place()
  float scales[2 * kPanelOutputs];
  float mins[2 * kPanelOutputs];
};

// Planes of 8, 4, 2 and 1 bits as far as the format has them, lowest bits first.
inline void unpack_codes(int bits, const std::byte* planes, uint8_t* codes) {
  std::memset(codes, 0, kChunkCodes);
  int first_bit = 0;
  for (const int width : {8, 4, 2, 1}) {
    if ((bits & width) == 0) continue;
    const size_t per_byte = 8 / static_cast<size_t>(width);
    const auto mask = static_cast<uint8_t>((1u << width) - 1u);
    for (size_t vector = 0; vector < kChunkCodes / 64; ++vector) {
      const std::byte* plane = planes + vector / per_byte * 64;
      const size_t shift = vector % per_byte * static_cast<size_t>(width);
      uint8_t* out = codes + vector * 64;
      for (size_t i = 0; i < 64; ++i) {
        const auto part = static_cast<uint8_t>(static_cast<uint8_t>(plane[i]) >> shift & mask);
        out[i] = static_cast<uint8_t>(out[i] | part << first_bit);
      }
    }
    planes += kChunkCodes / per_byte;
    first_bit += width;
  }
}

inline float half_entry(const std::byte* table, size_t index) {
  uint16_t half;
  std::memcpy(&half, table + 2 * index, sizeof(half));
  return half_to_float(half);
}

// A table of scales or minima: halves, or bytes times the header's halves.
inline void unpack_table(const PackedFormat& format, const std::byte* header,
                         const std::byte* table, float* out) {
  for (size_t i = 0; i < format.groups_a_chunk() * kPanelOutputs; ++i) {
    out[i] = format.two_level ? half_entry(header, i % kPanelOutputs) *
                                    static_cast<float>(static_cast<int8_t>(table[i]))
                              : half_entry(table, i);
  }
}

// Chunk `index` of a panel.
inline void unpack_chunk(const PackedFormat& format, const std::byte* panel, size_t index,
                         UnpackedChunk& out) {
  const std::byte* header = panel + format.header_at(index);
  const std::byte* chunk = panel + format.chunk_at(index);
  const std::byte* tables = chunk + format.plane_bytes;
  const size_t entries = format.groups_a_chunk() * kPanelOutputs;
  unpack_codes(format.bits, chunk, out.codes);
  unpack_table(format, header, tables, out.scales);
  if (format.has_min) {
    unpack_table(format, header + 2 * kPanelOutputs, tables + entries * (format.two_level ? 1 : 2),
                 out.mins);
  } else {
    for (size_t i = 0; i < entries; ++i) out.mins[i] = -format.offset * out.scales[i];
  }
}

}  // namespace ikv
