// The demo's second half: the recorded replies through the decode path of both caches, side by
// side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit_json.h"
#include "base/result.h"
#include "engine/kv_policy.h"
#include "engine/replay_lane.h"
#include "eval_metrics.h"
#include "result_json.h"

namespace ikv {

/// How the caches compare.
struct DemoComparison {
  int32_t session_tokens = 0;
  std::vector<TokenDifference> differences;  ///< replies after enough history
  std::vector<TokenDifference> last_reply;
  ReplayCost full;
  ReplayCost pruned;
  int64_t full_decode_us = 0;  ///< of the replies that are compared
  int64_t pruned_decode_us = 0;
  int64_t decoded_tokens = 0;
  AuditRecord last_turn;  ///< what the pruned cache's decode steps read in the last reply
};

/// Replays a session whose last message is a recorded reply. Replies with fewer than `min_history`
/// tokens before them are not compared. `num_threads`: 0 for all cores. Errors: those of loading,
/// of the template, and kInvalidArgument for a session without such a reply.
Result<DemoComparison> compare_caches(const std::string& model_path, const Conversation& session,
                                      const KvPolicy& policy, int num_threads, int min_history);

}  // namespace ikv
