// Level 1's view of a turn: where its intent comes from, and what a session remembers of earlier
// ones.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/kv_policy.h"
#include "engine/page_ranking.h"
#include "intent/intent_memory.h"
#include "intent/query_collector.h"
#include "model/model.h"

namespace ikv {

/// Queries of the span, its last ones, that decide on residency.
inline constexpr int32_t kSpanQueries = 8;

/// Shapes of the queries of all layers.
std::vector<QueryShape> query_shapes(const Model& model);

/// What a session remembers from turn to turn for level 1. Copyable: a forked session remembers
/// the same.
struct IntentHistory {
  std::optional<IntentMemory> memory;  ///< only when the policy asks for it
  IntentQueries last_mean;             ///< one row: the mean of the last span's queries
  PageLists last_wanted;               ///< for LRU: when a page was wanted last, in positions

  size_t size_bytes() const;
};

/// What is known of a turn when its prompt has been read.
struct TurnSources {
  KvSequenceId sequence = 0;
  IntentPhase phase = IntentPhase::kUser;
  const PageLists* span_mass = nullptr;   ///< attention of the span's last queries
  const QueryCollector* span = nullptr;   ///< their queries
  const IntentQueries* stated = nullptr;  ///< null: nothing was stated
  std::span<const TokenId> words;         ///< tokens of the span
};

/// Ranks pages for the turn that begins. Engine's thread only.
class TurnIntent {
 public:
  /// All arguments must outlive this; `codebooks` may be null. `layer_stride` > 1: only every so
  /// many layers are ranked (for measurements).
  TurnIntent(const Model& model, const KvPool& pool, const KeyCodebooks* codebooks,
             ThreadPool& threads, const PagePolicy& policy, int layer_stride = 1);

  /// What each sealed page is worth to the turn; the greatest stay hot. Errors: kInvalidArgument
  /// (the scorer lacks something, named).
  Result<PageLists> rank(const TurnSources& turn, const IntentHistory& history) const;

  /// How like this turn's intent is the last one's: cosine of mean queries, 1 for the same; nothing
  /// in the first turn. Then remembers the turn, its queries, and what it wanted.
  Result<std::optional<float>> remember(const TurnSources& turn, IntentHistory& history) const;

  /// Remembers the queries of a reply.
  Status remember_reply(IntentPhase phase, const QueryCollector& queries,
                        IntentHistory& history) const;

 private:
  Result<Intent> gather_intent(const TurnSources& turn, const IntentHistory& history) const;
  bool uses_memory() const { return intent_mix(policy_.intent).memory > 0; }
  Status ensure_memory(IntentHistory& history) const;
  PageLists rank_lru(const TurnSources& turn, const IntentHistory& history) const;
  void note_wanted(const TurnSources& turn, IntentHistory& history) const;

  const Model& model_;
  const KvPool& pool_;
  const KeyCodebooks* codebooks_;
  ThreadPool& threads_;
  PagePolicy policy_;
  int layer_stride_;
};

}  // namespace ikv
