// ContiguousAttention: the plainest cache that can stand behind a model; tests and oracles use it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "core/ids.h"
#include "core/layer_attention.h"

namespace ikv {

/// One row of a step: which sequence it belongs to and where it stands there.
struct ContiguousRow {
  int sequence = 0;
  LogicalPos position = 0;
};

/// Float32 keys and values of any number of sequences, one growing array per layer and sequence,
/// exact softmax attention in float32, one query at a time. A row's result depends on nothing but
/// its sequence. Straightforward on purpose (angles and sums of the softmax in double): the paged
/// attention is compared with it. Not thread-safe.
class ContiguousAttention : public LayerAttention {
 public:
  ContiguousAttention(int num_layers, int num_sequences, ThreadPool& threads);

  /// Names the rows of the next forward. A row must stand right after what its sequence holds, rows
  /// of one sequence in order; kInvalidArgument otherwise.
  Status begin_step(std::span<const ContiguousRow> rows);

  Status attend(int layer, const AttentionSpec& spec, float* q, float* k, const float* v,
                float* out) override;

  /// Tokens stored of a sequence, those of the step in progress included.
  int length(int sequence) const { return lengths_[static_cast<size_t>(sequence)]; }

  /// Forgets all but the first `num_tokens` tokens of a sequence.
  void truncate(int sequence, int num_tokens);

 private:
  struct Store {
    std::vector<float> k;  // [token][num_kv_heads][head_dim], after RoPE
    std::vector<float> v;
  };
  Store& store(int layer, int sequence) {
    return stores_[static_cast<size_t>(layer) * lengths_.size() + static_cast<size_t>(sequence)];
  }
  void write_rows(int layer, const AttentionSpec& spec, float* q, float* k, const float* v);

  ThreadPool& threads_;
  std::vector<Store> stores_;  // [layer][sequence]
  std::vector<int> lengths_;
  std::vector<ContiguousRow> rows_;
};

/// Rotates `num_heads` heads of one row in place for position `pos`; a null `rope` does nothing.
void rotate_heads(const RopeSpec* rope, int num_heads, int head_dim, LogicalPos pos, float* x);

}  // namespace ikv
