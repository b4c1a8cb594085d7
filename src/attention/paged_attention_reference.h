// Attention by definition, for tests: one query at a time, softmax in double.
#pragma once

#include <span>

#include "attention/paged_attention.h"

namespace ikv {

/// As attend_decode() of one job, straightforward and slow. Keys and values as read_kv_rows() gives
/// them; logits, softmax and sums in double. Allocates.
void attend_decode_reference(const AttentionSpec& spec, const DecodeJob& job);

/// As attend_prefill() of one job: attend_decode_reference() of each row over pages and own block.
void attend_prefill_reference(const AttentionSpec& spec, const PrefillJob& job);

}  // namespace ikv
