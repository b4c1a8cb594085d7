// Teacher-forced replay of recorded sessions on the full cache and on candidates, side by side.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/replay_lane.h"
#include "eval_data.h"
#include "eval_metrics.h"

namespace ikv {

/// A configuration to compare with the full cache.
struct EvalVariant {
  std::string name;
  ReplayConfig config;
};

/// One predicted token of one session on one variant.
struct EvalRecord {
  int32_t session = 0;  ///< index into the sessions that were run
  int32_t message = 0;
  LogicalPos position = 0;  ///< of the predicted token
  TokenId token = 0;
  TokenDifference difference;
};

/// What one variant gave over all sessions.
struct EvalOutcome {
  std::vector<EvalRecord> records;
  std::vector<ReplayCost> costs;        ///< by session
  std::vector<size_t> f16_kv_bytes;     ///< by session: keys and values of its tokens in f16
  std::vector<int32_t> session_tokens;  ///< by session
  int32_t num_turns = 0;                ///< turns with records
};

/// Called before each turn: session index, its tokens done and all.
using EvalProgress = std::function<void(size_t session, int32_t done, int32_t all)>;

/// Replays every session on the reference and on all variants in lockstep. Tokens of replies with
/// at least `min_history` tokens before them are compared. Errors: those of the lanes.
Result<std::vector<EvalOutcome>> run_eval(const Model& model, const KeyCodebooks* codebooks,
                                          ThreadPool& threads, const ReplayConfig& reference,
                                          const std::vector<EvalVariant>& variants,
                                          const std::vector<EvalSession>& sessions,
                                          int32_t min_history, const EvalProgress& progress);

}  // namespace ikv
