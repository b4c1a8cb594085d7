// How much each sealed page of the pool is worth to an intent, by any scorer of relevance.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/attention_spec.h"
#include "core/ids.h"
#include "core/intent.h"
#include "kv/key_codes.h"
#include "kv/kv_pool.h"
#include "relevance/page_scorer.h"

namespace ikv {

/// Values by page: [page index of a block][block]. Lists of heads that nobody asked for are empty.
using PageLists = std::vector<std::vector<float>>;

/// One KV head's pages and what they are scored against.
struct PageRankJob {
  ScorerKind scorer = ScorerKind::kExact;
  KvSequenceId sequence = 0;
  int layer = 0;
  int kv_head = 0;
  const AttentionSpec* spec = nullptr;      ///< the layer's
  const Intent* intent = nullptr;           ///< null for scorers that look at no query
  std::span<const TokenId> words;           ///< of the intent, for the lexical scorer
  const KeyCodebooks* codebooks = nullptr;  ///< for the code scorer
  uint64_t seed = 0;                        ///< for the random scorer
};

/// Mass of the sequence's sealed pages for the intent, as seen from the position after the last
/// token: mean over the heads of the group, masses sum to 1. Pages that a windowed layer no longer
/// sees get 0. Digests serve mean, deviation and, for `box`, the deviation's 0.8 (what normally
/// distributed keys have on average); minima and maxima are not stored and are read from the keys.
/// Reads the pool only: several threads may call at once. Errors: kInvalidArgument (what the scorer
/// needs is missing, named). Cost: rows * pages * head_dim, for exact and code times block_tokens.
Result<std::vector<float>> rank_pages(const KvPool& pool, const PageRankJob& job);

}  // namespace ikv
