// ReplayLane: one configuration of cache and pruning that a recorded conversation is replayed on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/memory_ledger.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "core/ids.h"
#include "core/kv_format.h"
#include "engine/kv_policy.h"
#include "engine/residency.h"
#include "engine/step_runner.h"
#include "engine/turn_intent.h"
#include "kv/key_codes.h"
#include "kv/kv_pool.h"
#include "model/model.h"

namespace ikv {

/// How a lane stores and reads its cache.
struct ReplayConfig {
  KvFormats formats{KvFormat::kInt8, KvFormat::kInt8};
  KvPolicy policy;
  int block_tokens = 32;
  int chunk_tokens = 512;  ///< prompt tokens of one step
  /// Page mass and queries are noted at every turn, and digests kept, though nothing is demoted:
  /// for those who measure on this lane.
  bool observe = false;
};

/// What a lane has cost since begin().
struct ReplayCost {
  uint64_t evaluated_tokens = 0;
  uint64_t decoded_tokens = 0;
  int64_t decode_us = 0;
  int64_t prefill_us = 0;
  size_t peak_kv_bytes = 0;  ///< pages, codes, digests, tables
  AttendStats attend;
  ResidencyStats resident;
  double similarity_sum = 0;  ///< of each turn's intent to the last one's; see TurnIntent
  uint64_t num_similarities = 0;
};

/// Runs the engine's own steps, with tokens from a recording instead of a sampler. Not thread-safe.
class ReplayLane {
 public:
  /// Room for `max_tokens`. All arguments but `config` must outlive the lane. Errors:
  /// kInvalidArgument, kUnsupported, kOutOfMemory.
  static Result<std::unique_ptr<ReplayLane>> create(const Model& model,
                                                    const KeyCodebooks* codebooks,
                                                    ThreadPool& threads, const ReplayConfig& config,
                                                    int32_t max_tokens);
  ~ReplayLane();

  /// Forgets everything and starts an empty sequence.
  Status begin();

  /// Evaluates tokens by the prefill path; logits() is then of the last one. `turn_starts`: a reply
  /// follows, so level 1 decides now. `phase`: of the message that is replied to.
  Status prefill(std::span<const TokenId> tokens, bool turn_starts,
                 IntentPhase phase = IntentPhase::kUser);

  /// Evaluates one token by the decode path; logits() predicts the next.
  Status decode(TokenId token);

  /// Asks on the side: evaluates `question` as the prompt of a turn and `answer` token by token;
  /// gives the mean negative log-likelihood of the answer's tokens (nats). Then everything is as
  /// before, pages that level 1 demoted for the question included. Errors: those of the steps.
  Result<double> ask(std::span<const TokenId> question, std::span<const TokenId> answer);

  /// From now on counts what decode() reads; it must have room for the next position. Null: nobody
  /// counts.
  void set_counter(AttendCounter* counter) { counter_ = counter; }

  std::span<const float> logits() const { return runner_->logits(0); }
  int32_t length() const { return pool_->length(sequence_); }
  const ReplayCost& cost() const { return cost_; }
  /// Bytes of the sequence's cache as it stands: pages, codes, digests, tables.
  size_t kv_bytes() const;

  // For those who measure on this lane; what they see holds until the next call.
  const KvPool& pool() const { return *pool_; }
  KvSequenceId sequence() const { return sequence_; }
  /// The turn as level 1 sees it, after prefill(..., true); the words are the caller's tokens.
  const TurnSources& turn() const { return turn_; }
  /// Queries of the reply's last tokens.
  const QueryCollector& reply_queries() const { return *reply_queries_; }

 private:
  ReplayLane() = default;
  struct HotPage {
    BlockId block = kNoBlock;
    int layer = 0;
    int kv_head = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<HotPage> copy_hot_pages() const;
  Status restore(const std::vector<HotPage>& pages);
  Result<double> answer_nll(std::span<const TokenId> question, std::span<const TokenId> answer);
  void note_memory();
  bool notes_turns() const { return config_.observe || config_.policy.demotes(); }
  Status start_turn(std::span<const TokenId> words, IntentPhase phase);

  ReplayConfig config_;
  std::unique_ptr<MemoryLedger> ledger_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<StepRunner> runner_;
  KvSequenceId sequence_ = 0;
  bool open_ = false;
  std::unique_ptr<TurnIntent> intent_;
  std::unique_ptr<QueryCollector> span_queries_;
  std::unique_ptr<QueryCollector> reply_queries_;
  AttendCounter* counter_ = nullptr;
  IntentHistory history_;
  TurnSources turn_;
  ReplayCost cost_;
};

}  // namespace ikv
