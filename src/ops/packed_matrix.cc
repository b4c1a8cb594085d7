#include "ops/packed_matrix.h"

#include <cstring>
#include <utility>

#include "base/check.h"
#include "ops/weight_groups.h"
#include "quant/dequantise.h"

namespace ikv {
namespace {

// Calls visit(byte of the chunk's planes, lowest bit there, lowest bit of the code, number of bits)
// for each plane that holds a part of the code of `output`'s `input`.
template <typename Visit>
void for_code_parts(int bits, size_t output, size_t input, const Visit& visit) {
  const size_t vector = input / 4 * 2 + output / 16;
  const size_t byte = output % 16 * 4 + input % 4;
  size_t plane = 0;
  int first_bit = 0;
  for (const int width : {8, 4, 2, 1}) {
    if ((bits & width) == 0) continue;
    const size_t per_byte = 8 / static_cast<size_t>(width);
    visit(plane + vector / per_byte * 64 + byte, static_cast<int>(vector % per_byte) * width,
          first_bit, width);
    plane += kChunkCodes / per_byte;
    first_bit += width;
  }
}

void store_code(int bits, size_t output, size_t input, unsigned code, std::byte* chunk) {
  for_code_parts(bits, output, input, [&](size_t at, int shift, int first_bit, int width) {
    const unsigned part = code >> first_bit & ((1u << width) - 1u);
    chunk[at] |= static_cast<std::byte>(part << shift);
  });
}

unsigned load_code(int bits, size_t output, size_t input, const std::byte* chunk) {
  unsigned code = 0;
  for_code_parts(bits, output, input, [&](size_t at, int shift, int first_bit, int width) {
    code |= (static_cast<unsigned>(chunk[at]) >> shift & ((1u << width) - 1u)) << first_bit;
  });
  return code;
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

// One output's 32 inputs into its place in a chunk of zeros.
void store_groups(const PackedFormat& format, const WeightGroups& groups, size_t output,
                  std::byte* header, std::byte* chunk) {
  for (size_t i = 0; i < kChunkInputs; ++i) {
    store_code(format.bits, output, i, groups.codes[i], chunk);
  }
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
  std::memset(packed, 0, bytes);
  for (size_t o = 0; o < num_outputs; ++o) {
    const std::byte* row = data + o * row_bytes;
    std::byte* panel = packed + o / kPanelOutputs * out.panel_bytes();
    const size_t column = o % kPanelOutputs;
    for (size_t c = 0; c < out.num_chunks(); ++c) {
      std::byte* chunk = panel + (out.format_.chunk(panel, c) - panel);
      if (out.format_.quantised()) {
        std::byte* header = panel + (out.format_.header(panel, c) - panel);
        store_groups(out.format_, read_weight_groups(type, row, c), column, header, chunk);
      } else {
        std::memcpy(chunk + column * info.block_bytes, row + c * info.block_bytes,
                    info.block_bytes);
      }
    }
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
    const std::byte* chunk = format_.chunk(panel, c);
    if (!format_.quantised()) {
      dequantise(format_.type, chunk + column * element_bytes, 1, out + c);
      continue;
    }
    for (size_t i = 0; i < kChunkInputs; ++i) {
      const auto [scale, min] = load_scale_and_min(format_, format_.header(panel, c), chunk,
                                                   i / format_.group_inputs, column);
      const auto code = static_cast<float>(load_code(format_.bits, column, i, chunk));
      out[c * kChunkInputs + i] =
          format_.has_min ? scale * code + min : scale * (code - format_.offset);
    }
  }
}

}  // namespace ikv
