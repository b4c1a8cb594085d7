// How attention sees cached keys and values: a list of pages by pointer and layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/ids.h"
#include "core/kv_format.h"

namespace ikv {

/// Where the parts of one page lie. A page holds up to `block_tokens` tokens of one layer and one
/// KV head: K rows [token][head_dim], V rows [token][head_dim], and their scales. Rows are
/// contiguous, so that one int8 token of head size 64 is one cache line: reading a few tokens of a
/// page costs only those lines. Filled by make_kv_page_layout() of quant/kv_codec.h.
struct KvPageLayout {
  KvFormats formats;
  int head_dim = 0;
  int block_tokens = 0;
  uint32_t k_offset = 0;  ///< K rows
  /// int8: one scale per token; int4: per channel a scale and a minimum. All IEEE halves: values
  /// are quantised with the scale as rounded, so its width costs no accuracy.
  uint32_t k_scale_offset = 0;
  uint32_t v_offset = 0;  ///< V rows
  /// int8: one scale per token; int4: scale and minimum per token and 32 channels; halves.
  uint32_t v_scale_offset = 0;
  uint32_t page_bytes = 0;  ///< whole page, a multiple of 64
};

/// One page as attention reads it. Its tokens are the logical positions begin ..
/// begin+num_tokens-1.
struct KvPageView {
  const std::byte* data = nullptr;
  const KvPageLayout* layout = nullptr;
  LogicalPos begin = 0;
  int32_t num_tokens = 0;
  int32_t position_shift =
      0;  ///< keys stand at position begin + i + shift when rotated differently
};

}  // namespace ikv
