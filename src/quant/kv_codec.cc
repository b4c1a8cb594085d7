#include "quant/kv_codec.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "quant/kv_codec_kernels.h"

namespace ikv {
namespace {

KvPart key_part(const KvPageLayout& layout) {
  return {layout.formats.k, true, layout.head_dim, layout.block_tokens};
}

KvPart value_part(const KvPageLayout& layout) {
  return {layout.formats.v, false, layout.head_dim, layout.block_tokens};
}

bool known(KvFormat format) {
  return format <= KvFormat::kInt4;
}

const uint8_t* bytes(const std::byte* page, uint32_t offset) {
  return reinterpret_cast<const uint8_t*>(page) + offset;
}

uint8_t* bytes(std::byte* page, uint32_t offset) {
  return reinterpret_cast<uint8_t*>(page) + offset;
}

void zero_rows_after(const KvPart& part, int num_rows, uint8_t* rows, uint8_t* scales) {
  const size_t row_bytes = kv_row_bytes(part.format, part.head_dim);
  const auto first = static_cast<size_t>(num_rows);
  const auto missing = static_cast<size_t>(part.block_tokens - num_rows);
  if (missing == 0) return;
  std::memset(rows + first * row_bytes, 0, missing * row_bytes);
  const size_t scale_bytes = kv_scale_bytes(part);
  if (scale_bytes == 0) return;
  // The scales of int4 keys belong to channels, not to rows.
  if (part.format == KvFormat::kInt4 && part.is_key) {
    if (num_rows == 0) std::memset(scales, 0, scale_bytes);
    return;
  }
  const size_t bytes_per_row = scale_bytes / static_cast<size_t>(part.block_tokens);
  std::memset(scales + first * bytes_per_row, 0, missing * bytes_per_row);
}

void convert_part(const KvPart& from, const uint8_t* from_rows, const uint8_t* from_scales,
                  int num_rows, const KvPart& to, uint8_t* rows, uint8_t* scales) {
  if (from.format == to.format) {
    std::memcpy(rows, from_rows,
                static_cast<size_t>(num_rows) * kv_row_bytes(to.format, to.head_dim));
    if (kv_scale_bytes(to) > 0) std::memcpy(scales, from_scales, kv_scale_bytes(to));
  } else {
    kv_codec_kernels(cpu_isa()).convert(from, from_rows, from_scales, num_rows, to, rows, scales);
  }
  zero_rows_after(to, num_rows, rows, scales);
}

}  // namespace

const KvCodecKernels& kv_codec_kernels(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::kAvx512Vnni) return kv_codec_kernels_avx512();
  if (isa == CpuIsa::kAvx2) return kv_codec_kernels_avx2();
#endif
  (void)isa;
  return kv_codec_kernels_portable();
}

Result<KvPageLayout> make_kv_page_layout(KvFormats formats, int head_dim, int block_tokens) {
  if (head_dim < 32 || head_dim > 512 || head_dim % 32 != 0) {
    return unsupported("attention head size " + std::to_string(head_dim) +
                       " is not supported by the KV cache: it must be a multiple of 32 from 32 to "
                       "512");
  }
  if (block_tokens < 16 || block_tokens > 128 || block_tokens % 16 != 0) {
    return unsupported("block size of " + std::to_string(block_tokens) +
                       " tokens is not supported by the KV cache: it must be a multiple of 16 from "
                       "16 to 128");
  }
  if (!known(formats.k) || !known(formats.v)) {
    return unsupported("KV format number " +
                       std::to_string(static_cast<int>(known(formats.k) ? formats.v : formats.k)) +
                       " is not known; formats are f32, f16, bf16, int8 and int4");
  }
  KvPageLayout layout;
  layout.formats = formats;
  layout.head_dim = head_dim;
  layout.block_tokens = block_tokens;
  const auto tokens = static_cast<size_t>(block_tokens);
  // Each part starts a cache line; only int8 scales of odd multiples of 16 tokens leave a gap.
  size_t end = 0;
  const auto take = [&end](size_t num_bytes) {
    const size_t offset = end;
    end += (num_bytes + 63) / 64 * 64;
    return static_cast<uint32_t>(offset);
  };
  layout.k_offset = take(tokens * kv_row_bytes(formats.k, head_dim));
  layout.k_scale_offset = take(kv_scale_bytes(key_part(layout)));
  layout.v_offset = take(tokens * kv_row_bytes(formats.v, head_dim));
  layout.v_scale_offset = take(kv_scale_bytes(value_part(layout)));
  layout.page_bytes = static_cast<uint32_t>(end);
  return layout;
}

void write_kv_rows(const KvPageLayout& layout, std::byte* page, int first_row, int num_rows,
                   const float* k, const float* v, size_t stride) {
  IKV_CHECK(first_row >= 0 && num_rows >= 0 && first_row + num_rows <= layout.block_tokens);
  IKV_CHECK(layout.formats.k < KvFormat::kInt8 && layout.formats.v < KvFormat::kInt8);
  const KvCodecKernels& kernels = kv_codec_kernels(cpu_isa());
  kernels.store_plain(key_part(layout), bytes(page, layout.k_offset), first_row, num_rows, k,
                      stride);
  kernels.store_plain(value_part(layout), bytes(page, layout.v_offset), first_row, num_rows, v,
                      stride);
}

void read_kv_rows(const KvPageLayout& layout, const std::byte* page, int first_row, int num_rows,
                  float* k, float* v, size_t stride) {
  IKV_CHECK(first_row >= 0 && num_rows >= 0 && first_row + num_rows <= layout.block_tokens);
  const KvCodecKernels& kernels = kv_codec_kernels(cpu_isa());
  if (k != nullptr) {
    kernels.decode(key_part(layout), bytes(page, layout.k_offset),
                   bytes(page, layout.k_scale_offset), first_row, num_rows, k, stride);
  }
  if (v != nullptr) {
    kernels.decode(value_part(layout), bytes(page, layout.v_offset),
                   bytes(page, layout.v_scale_offset), first_row, num_rows, v, stride);
  }
}

void convert_kv_page(const KvPageLayout& from, const std::byte* source, int num_tokens,
                     const KvPageLayout& to, std::byte* target) {
  IKV_CHECK(from.head_dim == to.head_dim && from.block_tokens == to.block_tokens);
  IKV_CHECK(num_tokens >= 0 && num_tokens <= from.block_tokens);
  convert_part(key_part(from), bytes(source, from.k_offset), bytes(source, from.k_scale_offset),
               num_tokens, key_part(to), bytes(target, to.k_offset),
               bytes(target, to.k_scale_offset));
  convert_part(value_part(from), bytes(source, from.v_offset), bytes(source, from.v_scale_offset),
               num_tokens, value_part(to), bytes(target, to.v_offset),
               bytes(target, to.v_scale_offset));
}

}  // namespace ikv
