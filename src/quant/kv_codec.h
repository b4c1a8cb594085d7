// Cached keys and values in their storage formats: page layout, writing, reading, conversion.
#pragma once

#include <cstddef>

#include "base/result.h"
#include "core/kv_format.h"
#include "core/kv_view.h"

namespace ikv {

/// Byte layout of one page (one layer, one KV head). Errors: kUnsupported naming a head size (not a
/// multiple of 32 in 32..512) or block size (not a multiple of 16 in 16..128) or format.
Result<KvPageLayout> make_kv_page_layout(KvFormats formats, int head_dim, int block_tokens);

/// Writes rows first_row .. first_row+num_rows-1 of a page whose K and V are f32, f16 or bf16 (an
/// unsealed page). `k`, `v`: rows of head_dim floats, `stride` floats apart; k after RoPE. Finite
/// values beyond f16's range become its largest, NaN stays NaN. Thread-safe for different rows.
void write_kv_rows(const KvPageLayout& layout, std::byte* page, int first_row, int num_rows,
                   const float* k, const float* v, size_t stride);

/// Reads rows of a page of any format as floats; `k` or `v` may be null. Rows `stride` floats
/// apart.
void read_kv_rows(const KvPageLayout& layout, const std::byte* page, int first_row, int num_rows,
                  float* k, float* v, size_t stride);

/// Writes the page `target` from the first `num_tokens` rows of `source`: sealing (f16 to int8) and
/// demotion (int8 to int4). Deterministic: a function of the source's bytes alone. K int4 has scale
/// and minimum per channel over the page's tokens, V int4 per token and 32 channels; int8 is
/// symmetric with one scale per token. Scales and minima are stored as IEEE halves (half the tables
/// of float: int4 pages must stay near 31 % of f16's bytes); a scale is rounded up to a half first
/// and values are quantised with that rounded scale, so its width costs no accuracy. Tables of int4
/// keys: all scales, then all minima; of int4 values: scale and minimum of each group. Nibbles go
/// by 32 channels in 16 bytes: low ones are channels 0..15, high ones 16..31. K or V whose format
/// stays is copied. Rows that are not there are zeroed. Finite numbers stay finite: what is beyond
/// a format's range becomes its largest. The same bytes on every machine.
void convert_kv_page(const KvPageLayout& from, const std::byte* source, int num_tokens,
                     const KvPageLayout& to, std::byte* target);

}  // namespace ikv
