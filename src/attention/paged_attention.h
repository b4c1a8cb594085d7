// Exact attention over a list of pages or over chosen tokens of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/thread_pool.h"
#include "core/attention_spec.h"
#include "core/ids.h"
#include "core/kv_view.h"

namespace ikv {

/// An entry of a page list: page index * block_tokens + row within the page.
using PageEntry = uint32_t;

/// One query row of one KV head's group, by the decode kernels. Pages ascend and have one block
/// size; formats and shifts may be any mix. Token i of a page is read when begin + i <= position
/// and, in a windowed layer, begin + i + position_shift > position - window. Keys of a page with a
/// shift were rotated for begin + i and stand at begin + i + shift: their queries are turned back
/// by the shift (needs AttentionSpec::rope). A page without data (null) is passed over.
struct DecodeJob {
  const float* q = nullptr;  ///< [group][head_dim], after RoPE, not scaled
  float* out = nullptr;      ///< [group][head_dim]; zeros when nothing can be read
  LogicalPos position = 0;
  std::span<const KvPageView> pages;
  bool all_entries = true;             ///< false: only `entries`
  std::span<const PageEntry> entries;  ///< ascending; ANDed with the causal and window masks
  /// Optional [pages]: softmax mass that the row's queries laid on each page, summed over the group
  /// (all pages together: group size). Written, not added to.
  float* page_mass = nullptr;
};

/// Rows of one block of one sequence and one KV head, by the prefill kernels: the rows stand at
/// first_position .., all within the block of `own`. Row p reads all `pages` (earlier blocks, as
/// stored) and of `own` (the block being written, unsealed) the rows up to p. So a row's result
/// does not depend on how its prompt was cut into chunks.
struct PrefillJob {
  const float* q = nullptr;  ///< row r, head g: q + r * q_stride + g * head_dim; not scaled
  size_t q_stride = 0;
  float* out = nullptr;  ///< row r, head g: out + r * out_stride + g * head_dim
  size_t out_stride = 0;
  int num_rows = 0;
  LogicalPos first_position = 0;
  std::span<const KvPageView> pages;
  KvPageView own;
  /// Optional [pages + 1] (own last): mass of the rows from `mass_first_row` on, summed over rows
  /// and group.
  float* page_mass = nullptr;
  int mass_first_row = 0;
};

/// Scratch that grows to the largest call and stays; one per caller. Not thread-safe. Its owner
/// charges the ledger: size_bytes() never exceeds bytes_for() of the largest calls.
class AttentionScratch {
 public:
  AttentionScratch();
  ~AttentionScratch();
  AttentionScratch(AttentionScratch&&) noexcept;
  AttentionScratch& operator=(AttentionScratch&&) noexcept;

  /// Bytes held now.
  size_t size_bytes() const;
  /// The most that one layer's call may need: decode rows of lists of up to `num_tokens` tokens on
  /// up to `num_threads` threads, and prefill of any number of rows over such lists.
  static size_t bytes_for(const AttentionSpec& spec, int num_decode_rows, int num_tokens,
                          int block_tokens, int num_threads);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// Runs all jobs of one layer, spread over `threads` by job and, in decode, by fixed runs of 256
/// entries that are merged in order: a job's result depends on the job alone, bit for bit (on one
/// instruction set), and all_entries equals a list of all entries bit for bit. Logits and sums stay
/// finite for any finite input. Kernels' own error: about 1e-6 of the output where pages are floats
/// and, where they are integers, up to 1e-4 (queries and weights meet them with 16 bits), a
/// hundredth of what int8 costs. Bound by memory: one pass over the keys and values that are read.
void attend_decode(const AttentionSpec& spec, std::span<const DecodeJob> jobs,
                   AttentionScratch& scratch, ThreadPool& threads);
void attend_prefill(const AttentionSpec& spec, std::span<const PrefillJob> jobs,
                    AttentionScratch& scratch, ThreadPool& threads);

/// Logits (scaled, capped; -infinity where masked) of `entries` (ascending) for each query of the
/// job's group: logits[g * stride + i]. The very values that attend_decode() uses. Job's `out`,
/// `entries` and `page_mass` are not looked at. On this thread; several threads may call at once.
void score_entries(const AttentionSpec& spec, const DecodeJob& job,
                   std::span<const PageEntry> entries, float* logits, size_t stride);

/// Softmax over given logits (from score_entries(), of these or more entries) and sum of values:
/// equals attend_decode() with these `entries` bit for bit, without reading keys again. Writes the
/// job's `out` and `page_mass`. On this thread; several threads may call at once.
void attend_scored(const AttentionSpec& spec, const DecodeJob& job,
                   std::span<const PageEntry> entries, const float* logits, size_t stride);

}  // namespace ikv
