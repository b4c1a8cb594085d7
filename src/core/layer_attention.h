// The one door through which a model reaches keys, values and everything that decides on them.
#pragma once

#include "base/result.h"
#include "core/attention_spec.h"

namespace ikv {

/// Implemented by the engine for one step's batch: it knows which session and position every row
/// belongs to. The model calls attend() once per layer, in ascending order of layers.
class LayerAttention {
 public:
  virtual ~LayerAttention() = default;

  /// Rotates, stores the rows' keys and values, and attends.
  /// `q`: [rows][num_heads][head_dim], `k`, `v`: [rows][num_kv_heads][head_dim], all before RoPE,
  /// float32, dense; q and k may be overwritten. `out`: [rows][num_heads][head_dim].
  /// Errors: kOutOfMemory, kIo of a recall, kCancelled; the step is then abandoned.
  virtual Status attend(int layer, const AttentionSpec& spec, float* q, float* k, const float* v,
                        float* out) = 0;
};

}  // namespace ikv
