// The pool's configuration for a model.
#pragma once

#include "core/kv_format.h"
#include "kv/kv_pool_types.h"
#include "model/model.h"

namespace ikv {

/// Layers, formats and the functions that pages, codes and digests are made with. `codes`: key
/// codes are kept for level 2; `demotable`: level 1 may turn sealed pages to int4; `digests`: page
/// digests are kept for level 1's scorers.
KvPoolConfig make_pool_config(const Model& model, KvFormats formats, int block_tokens, bool codes,
                              bool demotable, bool digests = false);

/// Formats of demoted pages.
inline constexpr KvFormats kColdFormats{KvFormat::kInt4, KvFormat::kInt4};

}  // namespace ikv
