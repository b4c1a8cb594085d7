// The KV codecs' inner functions, one table per instruction set. Internal to quant.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_isa.h"
#include "core/kv_format.h"

namespace ikv {

/// One half of a page, its keys or its values.
struct KvPart {
  KvFormat format = KvFormat::kF16;
  bool is_key = true;  ///< int4 differs: keys have a scale per channel, values per token
  int head_dim = 0;
  int block_tokens = 0;
};

/// What changes with the instruction set; results do not: the same bytes on every machine.
struct KvCodecKernels {
  /// `num_rows` rows from `first_row` on as floats, `stride` floats apart.
  void (*decode)(const KvPart& part, const uint8_t* rows, const uint8_t* scales, int first_row,
                 int num_rows, float* out, size_t stride);
  /// Writes rows of f32, f16 or bf16. Finite values beyond f16's range become its largest.
  void (*store_plain)(const KvPart& part, uint8_t* rows, int first_row, int num_rows,
                      const float* in, size_t stride);
  /// The first `num_rows` rows of `from` in `to`'s format, which is another one.
  void (*convert)(const KvPart& from, const uint8_t* from_rows, const uint8_t* from_scales,
                  int num_rows, const KvPart& to, uint8_t* to_rows, uint8_t* to_scales);
};

const KvCodecKernels& kv_codec_kernels(CpuIsa isa);

const KvCodecKernels& kv_codec_kernels_portable();
#if defined(__x86_64__)
const KvCodecKernels& kv_codec_kernels_avx2();
const KvCodecKernels& kv_codec_kernels_avx512();
#endif

/// Bytes of a row of `head_dim` numbers.
inline size_t kv_row_bytes(KvFormat format, int head_dim) {
  const auto dim = static_cast<size_t>(head_dim);
  switch (format) {
    case KvFormat::kF32:
      return dim * 4;
    case KvFormat::kF16:
    case KvFormat::kBF16:
      return dim * 2;
    case KvFormat::kInt8:
      return dim;
    case KvFormat::kInt4:
      return dim / 2;
  }
  return 0;
}

/// Bytes of the scales of one half of a page.
inline size_t kv_scale_bytes(const KvPart& part) {
  const auto dim = static_cast<size_t>(part.head_dim);
  const auto tokens = static_cast<size_t>(part.block_tokens);
  if (part.format == KvFormat::kInt8) return tokens * 2;
  if (part.format == KvFormat::kInt4) return part.is_key ? dim * 4 : tokens * (dim / 32) * 4;
  return 0;
}

}  // namespace ikv
