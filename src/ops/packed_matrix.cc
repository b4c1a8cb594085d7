#include "ops/packed_matrix.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "ops/weight_groups.h"
#include "quant/dequantise.h"

namespace ikv {
namespace {

constexpr size_t kVectorBytes = 64;

// Splits 1024 codes, in the order of code_place(), over the planes of a chunk.
void store_codes(int bits, const uint8_t* codes, std::byte* planes) {
  int first_bit = 0;
  for (const int width : {8, 4, 2, 1}) {
    if ((bits & width) == 0) continue;
    const size_t per_byte = 8 / static_cast<size_t>(width);
    const auto mask = static_cast<uint8_t>((1u << width) - 1u);
    for (size_t j = 0; j < kChunkCodes / kVectorBytes / per_byte; ++j) {
      std::array<uint8_t, kVectorBytes> packed{};
      for (size_t i = 0; i < per_byte; ++i) {
        const uint8_t* vector = codes + (j * per_byte + i) * kVectorBytes;
        const int shift = static_cast<int>(i) * width;
        for (size_t b = 0; b < kVectorBytes; ++b) {
          const unsigned part = vector[b] >> first_bit & mask;
          packed[b] = static_cast<uint8_t>(packed[b] | part << shift);
        }
      }
      std::memcpy(planes + j * kVectorBytes, packed.data(), kVectorBytes);
    }
    planes += kChunkCodes / per_byte;
    first_bit += width;
  }
}

// The codes of one output, by input.
std::array<uint8_t, kChunkInputs> load_codes(int bits, size_t output, const std::byte* planes) {
  std::array<uint8_t, kChunkInputs> codes{};
  int first_bit = 0;
  for (const int width : {8, 4, 2, 1}) {
    if ((bits & width) == 0) continue;
    const size_t per_byte = 8 / static_cast<size_t>(width);
    const unsigned mask = (1u << width) - 1u;
    for (size_t i = 0; i < kChunkInputs; i += 4) {
      const size_t vector = code_place(output, i) / kVectorBytes;
      const size_t shift = vector % per_byte * static_cast<size_t>(width);
      const std::byte* four =
          planes + vector / per_byte * kVectorBytes + code_place(output, i) % kVectorBytes;
      for (size_t k = 0; k < 4; ++k) {
        const unsigned part = static_cast<unsigned>(four[k]) >> shift & mask;
        codes[i + k] = static_cast<uint8_t>(codes[i + k] | part << first_bit);
      }
    }
    planes += kChunkCodes / per_byte;
    first_bit += width;
  }
  return codes;
}

// Puts `value` into entry `index` of a table.
template <typename T>
void store_entry(std::byte* table, size_t index, T value) {
  std::memcpy(table + index * sizeof(T), &value, sizeof(T));
}

template <typename T>
T load_entry(const std::byte* table, size_t index) {
  T value;
  std::memcpy(&value, table + index * sizeof(T), sizeof(T));
  return value;
}

// One output's scales and minima into their places in a chunk and its header.
void store_scales(const PackedFormat& format, const WeightGroups& groups, size_t output,
                  std::byte* header, std::byte* chunk) {
  std::byte* tables = chunk + format.plane_bytes;
  if (!format.two_level) {
    store_entry(tables, output, groups.scale);
    if (format.has_min) store_entry(tables, kPanelOutputs + output, groups.min);
    return;
  }
  store_entry(header, output, groups.scale);
  if (format.has_min) store_entry(header, kPanelOutputs + output, groups.min);
  const size_t num_groups = format.groups_a_chunk();
  for (size_t g = 0; g < num_groups; ++g) {
    store_entry(tables, g * kPanelOutputs + output, groups.scales[g]);
    if (format.has_min) {
      store_entry(tables, (num_groups + g) * kPanelOutputs + output, groups.mins[g]);
    }
  }
}

struct ScaleAndMin {
  float scale;
  float min;
};

ScaleAndMin load_scale_and_min(const PackedFormat& format, const std::byte* header,
                               const std::byte* chunk, size_t group, size_t output) {
  const std::byte* tables = chunk + format.plane_bytes;
  const std::byte* halves = format.two_level ? header : tables;
  float scale = half_to_float(load_entry<uint16_t>(halves, output));
  float min =
      format.has_min ? half_to_float(load_entry<uint16_t>(halves, kPanelOutputs + output)) : 0.0f;
  if (format.two_level) {
    const size_t place = group * kPanelOutputs + output;
    scale *= load_entry<int8_t>(tables, place);
    if (format.has_min) {
      min *= load_entry<int8_t>(tables, format.groups_a_chunk() * kPanelOutputs + place);
    }
  }
  return {scale, min};
}

// The rows of one panel, `num_rows` of them, `row_bytes` apart.
void pack_quantised_panel(const PackedFormat& format, const std::byte* rows, size_t num_rows,
                          size_t row_bytes, size_t num_chunks, std::byte* panel) {
  std::array<uint8_t, kChunkCodes> codes{};
  for (size_t c = 0; c < num_chunks; ++c) {
    std::byte* header = panel + format.header_at(c);
    std::byte* chunk = panel + format.chunk_at(c);
    for (size_t o = 0; o < num_rows; ++o) {
      const WeightGroups groups = read_weight_groups(format.type, rows + o * row_bytes, c);
      for (size_t i = 0; i < kChunkInputs; i += 4) {
        std::memcpy(codes.data() + code_place(o, i), groups.codes.data() + i, 4);
      }
      store_scales(format, groups, o, header, chunk);
    }
    store_codes(format.bits, codes.data(), chunk);
  }
}

void pack_float_panel(const PackedFormat& format, const std::byte* rows, size_t num_rows,
                      size_t row_bytes, size_t num_chunks, std::byte* panel) {
  const size_t element_bytes = format.chunk_bytes / kPanelOutputs;
  for (size_t o = 0; o < num_rows; ++o) {
    for (size_t c = 0; c < num_chunks; ++c) {
      std::memcpy(panel + c * format.chunk_bytes + o * element_bytes,
                  rows + o * row_bytes + c * element_bytes, element_bytes);
    }
  }
}

}  // namespace

size_t PackedMatrix::packed_bytes(WeightType type, size_t num_outputs, size_t num_inputs) {
  const PackedFormat format = packed_format(type);
  const size_t num_panels = num_outputs / kPanelOutputs + (num_outputs % kPanelOutputs != 0);
  const size_t num_runs = num_inputs / format.chunk_inputs / format.run_chunks;
  size_t panel_bytes = 0;
  size_t bytes = 0;
  if (__builtin_mul_overflow(num_runs, format.run_bytes(), &panel_bytes) ||
      __builtin_mul_overflow(num_panels, panel_bytes, &bytes)) {
    return 0;
  }
  return bytes;
}

PackedMatrix PackedMatrix::pack(WeightType type, const std::byte* data, size_t num_outputs,
                                size_t num_inputs, std::shared_ptr<AlignedBuffer> memory,
                                size_t offset) {
  PackedMatrix out;
  out.format_ = packed_format(type);
  out.num_outputs_ = num_outputs;
  out.num_inputs_ = num_inputs;
  const WeightTypeInfo& info = weight_type_info(type);
  const size_t bytes = packed_bytes(type, num_outputs, num_inputs);
  IKV_CHECK(num_inputs % info.block_elements == 0 && offset % 64 == 0);
  IKV_CHECK(bytes <= memory->size_bytes() && offset <= memory->size_bytes() - bytes);
  std::byte* packed = memory->data() + offset;
  const size_t row_bytes = num_inputs / info.block_elements * info.block_bytes;
  const auto pack_panel = out.format_.quantised() ? pack_quantised_panel : pack_float_panel;
  for (size_t p = 0; p < out.num_panels(); ++p) {
    const size_t first = p * kPanelOutputs;
    std::byte* panel = packed + p * out.panel_bytes();
    std::memset(panel, 0, out.panel_bytes());
    pack_panel(out.format_, data + first * row_bytes, std::min(kPanelOutputs, num_outputs - first),
               row_bytes, out.num_chunks(), panel);
  }
  out.data_ = packed;
  out.memory_ = std::move(memory);
  return out;
}

Result<PackedMatrix> PackedMatrix::pack(WeightType type, const std::byte* data, size_t num_outputs,
                                        size_t num_inputs) {
  IKV_ASSIGN_OR_RETURN(AlignedBuffer buffer,
                       AlignedBuffer::allocate(packed_bytes(type, num_outputs, num_inputs)));
  return pack(type, data, num_outputs, num_inputs,
              std::make_shared<AlignedBuffer>(std::move(buffer)), 0);
}

void PackedMatrix::unpack_row(size_t index, float* out) const {
  const std::byte* const panel = this->panel(index / kPanelOutputs);
  const size_t column = index % kPanelOutputs;
  const size_t element_bytes = format_.chunk_bytes / kPanelOutputs;
  for (size_t c = 0; c < num_chunks(); ++c) {
    const std::byte* chunk = panel + format_.chunk_at(c);
    if (!format_.quantised()) {
      dequantise(format_.type, chunk + column * element_bytes, 1, out + c);
      continue;
    }
    const auto codes = load_codes(format_.bits, column, chunk);
    for (size_t i = 0; i < kChunkInputs; i += format_.group_inputs) {
      const auto [scale, min] = load_scale_and_min(format_, panel + format_.header_at(c), chunk,
                                                   i / format_.group_inputs, column);
      for (size_t k = i; k < i + format_.group_inputs; ++k) {
        const auto code = static_cast<float>(codes[k]);
        out[c * kChunkInputs + k] =
            format_.has_min ? scale * code + min : scale * (code - format_.offset);
      }
    }
  }
}

}  // namespace ikv
