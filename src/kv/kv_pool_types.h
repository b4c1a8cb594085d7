// Plain structs of KvPool's interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/kv_format.h"
#include "core/kv_view.h"

namespace ikv {

/// Names one sequence (a growing list of cached tokens) of a pool; reused after close().
using KvSequenceId = uint32_t;
/// Names one pin of a prefix; reused after unpin().
using KvPinId = uint32_t;

/// Shape of one layer's cache.
struct KvLayerShape {
  int num_kv_heads = 0;
  int head_dim = 0;
};

/// What a pool is made of. Fixed for its life, except the cap.
struct KvPoolConfig {
  std::vector<KvLayerShape> layers;  ///< one entry a layer; head sizes may differ
  KvFormats formats{KvFormat::kInt8, KvFormat::kInt8};  ///< of sealed pages
  /// Further formats that level 1 may convert sealed pages to (int4 for the cold state).
  std::vector<KvFormats> cold_formats;
  int block_tokens = 32;  ///< tokens of a block: 16..128, a multiple of 16
  /// Bytes of key code of one token of one KV head of head size d: `code_bytes(d)`; of a digest of
  /// one page likewise. Null: none is kept. The pool stores them and does not look inside.
  size_t (*code_bytes_per_token)(int head_dim) = nullptr;
  size_t (*digest_bytes_per_page)(int head_dim) = nullptr;
  /// What the caller keeps for each block of an open sequence (page views, say), charged with the
  /// sequence's own tables.
  size_t sequence_block_bytes = 0;
  /// Address space reserved at start, the most that set_cap() can ever use; 0: the ledger's cap.
  size_t arena_bytes = 0;
  /// Byte layout of a page (formats, head_dim, block_tokens): make_kv_page_layout of quant.
  std::function<Result<KvPageLayout>(KvFormats, int, int)> make_layout;
  bool share_prefixes = true;  ///< false: nothing is published, matches find nothing
};

/// The pages of a step between reserve() and commit(). Blocks are addressed by page_data() etc.
/// Rows of the step at positions [old_length, new_length) go:
/// - to `tail` at row position % block_tokens, while the position lies in the tail's block;
/// - to `sealed[i]` as whole sealed pages of block old_length / block_tokens + i. When the tail is
///   not kNoBlock and its block fills, sealed[0] is its sealed form: encode it from the tail's rows
///   and the step's;
/// - to `next_tail` the rest, at row position % block_tokens. It is `tail` when no block fills.
/// Codes of a row go to sealed[i] when its block is to be sealed, else to `next_tail`; the pool
/// carries the codes of the tail's earlier rows over to sealed[0].
struct KvStep {
  int32_t old_length = 0;
  int32_t new_length = 0;
  BlockId tail = kNoBlock;       ///< unsealed block before the step; kNoBlock at a block border
  BlockId next_tail = kNoBlock;  ///< unsealed block after the step; kNoBlock at a block border
  std::span<const BlockId> sealed;
};

/// Figures for metrics; one consistent snapshot.
struct KvPoolStats {
  size_t num_sequences = 0;
  size_t num_blocks = 0;       ///< in use or idle
  size_t num_idle_blocks = 0;  ///< kept for later matches, reclaimable
  size_t num_pinned_idle_blocks = 0;
  size_t num_extents = 0;
  size_t live_page_bytes = 0;  ///< slots owned by blocks of open sequences
  size_t idle_page_bytes = 0;  ///< slots owned by idle blocks
  size_t charged_bytes = 0;    ///< pages (whole extents), codes, digests, tables
  size_t promised_bytes = 0;   ///< further bytes that promises may still claim, compacted
  uint64_t num_reclaimed_blocks = 0;
  uint64_t num_deduplicated_blocks = 0;
  uint64_t num_matched_tokens = 0;
  uint64_t num_moved_pages = 0;  ///< by compaction
};

}  // namespace ikv
