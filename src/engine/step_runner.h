// StepRunner: one forward pass over rows of many sequences, on the paged cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/pool_attention.h"
#include "engine/step_rows.h"
#include "kv/kv_pool.h"
#include "model/model.h"
#include "model/workspace.h"

namespace ikv {

/// Runs steps. Not thread-safe: one thread computes. Buffers grow to the largest step and stay.
class StepRunner {
 public:
  /// All arguments must outlive this; `codebooks` may be null when the pool keeps no codes.
  StepRunner(const Model& model, KvPool& pool, const KeyCodebooks* codebooks, ThreadPool& threads);

  /// Reserves, evaluates and commits all `rows`. On an error nothing is committed, every sequence
  /// is as before. A sequence may appear once. Errors: kOutOfMemory (not within a promise),
  /// kInvalidArgument (token out of the vocabulary).
  Status run(std::span<const StepRows> rows);

  /// Evaluates prefill rows and gives back all that they wrote: the pool is as before, and so are
  /// the last run()'s logits. What is left is what `rows` notes (queries). Errors as run().
  Status probe(const StepRows& rows);

  /// Logits [vocabulary] of the last run(), in the order of the rows that asked for them; valid
  /// until the next run().
  std::span<const float> logits(size_t logit_row) const;
  size_t num_logit_rows() const { return logit_rows_.size(); }

  /// A closed sequence's tables go.
  void forget(KvSequenceId sequence) { attention_.forget(sequence); }

  PoolAttention& attention() { return attention_; }

  /// Scratch of steps of at most `num_rows` rows, of which at most `num_logit_rows` have logits or
  /// decode, over histories of at most `context_tokens`.
  static size_t scratch_bytes(const Model& model, const KvPool& pool, int num_rows,
                              int num_logit_rows, int context_tokens, int num_threads);

 private:
  Status reserve(std::span<const StepRows> rows);
  Status forward(std::span<const StepRows> rows);

  const Model& model_;
  KvPool& pool_;
  PoolAttention attention_;
  Workspace workspace_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> logit_rows_;
  std::vector<float> logits_;
};

}  // namespace ikv
