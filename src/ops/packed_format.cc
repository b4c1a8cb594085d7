#include "ops/packed_format.h"

#include "base/check.h"

namespace ikv {
namespace {

constexpr size_t kHalfBytes = 2;

PackedFormat quantised(WeightType type, int bits, size_t group_inputs, bool has_min, float offset) {
  PackedFormat format{.type = type,
                      .bits = bits,
                      .group_inputs = group_inputs,
                      .has_min = has_min,
                      .two_level = weight_type_info(type).block_elements == 256,
                      .offset = offset,
                      .chunk_inputs = kChunkInputs};
  const size_t num_tables = has_min ? 2 : 1;
  const size_t table_entries = format.groups_a_chunk() * kPanelOutputs;
  format.plane_bytes = kChunkCodes * static_cast<size_t>(bits) / 8;
  if (format.two_level) {
    format.chunk_bytes = format.plane_bytes + num_tables * table_entries;
    format.header_bytes = num_tables * kPanelOutputs * kHalfBytes;
    format.run_chunks = 256 / kChunkInputs;
  } else {
    format.chunk_bytes = format.plane_bytes + num_tables * table_entries * kHalfBytes;
  }
  return format;
}

PackedFormat floats(WeightType type) {
  return {.type = type, .chunk_bytes = kPanelOutputs * weight_type_info(type).block_bytes};
}

}  // namespace

PackedFormat packed_format(WeightType type) {
  switch (type) {
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBF16:
      return floats(type);
    case WeightType::kQ8_0:
      return quantised(type, 8, 32, false, 128.0f);
    case WeightType::kQ4_0:
      return quantised(type, 4, 32, false, 8.0f);
    case WeightType::kQ4_1:
      return quantised(type, 4, 32, true, 0.0f);
    case WeightType::kQ5_0:
      return quantised(type, 5, 32, false, 16.0f);
    case WeightType::kQ5_1:
      return quantised(type, 5, 32, true, 0.0f);
    case WeightType::kQ2_K:
      return quantised(type, 2, 16, true, 0.0f);
    case WeightType::kQ3_K:
      return quantised(type, 3, 16, false, 4.0f);
    case WeightType::kQ4_K:
      return quantised(type, 4, 32, true, 0.0f);
    case WeightType::kQ5_K:
      return quantised(type, 5, 32, true, 0.0f);
    case WeightType::kQ6_K:
      return quantised(type, 6, 16, false, 32.0f);
  }
  IKV_CHECK(!"a weight type without a packed layout");
  return {};
}

}  // namespace ikv
