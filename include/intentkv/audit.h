// What the cache policy did for one reply, in full: nothing is pruned silently. Places and figures,
// and the token ids; no text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "intentkv/generation.h"
#include "intentkv/message.h"

namespace ikv {

/// One part of one message in the transcript.
struct AuditSpan {
  int32_t message = -1;  ///< index in the conversation; -1: text of no message (tool schemas)
  Role role = Role::kUser;
  std::string part;  ///< "header", "content", "footer": of the chat template
  int32_t begin = 0;
  int32_t end = 0;              ///< tokens [begin, end)
  double attended_share = 1.0;  ///< mean of its tokens' shares
};

/// Pages of one block by the reason for their form; all zero for an unsealed block.
struct AuditReasons {
  int32_t pin = 0;      ///< hot: the attention sink, or pinned by the client
  int32_t recent = 0;   ///< hot: the recent window
  int32_t score = 0;    ///< hot: among the most wanted by the turn's queries
  int32_t room = 0;     ///< hot: within the budget, nobody had to choose
  int32_t demoted = 0;  ///< cold: demoted now, others were wanted more
  int32_t earlier = 0;  ///< cold: demoted at an earlier turn
};

/// One block of the cache: consecutive tokens, over all layers and KV heads.
struct AuditBlock {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t hot_pages = 0;   ///< as they stand after the reply
  int32_t cold_pages = 0;  ///< in their smaller form
  /// Share of the attention of the turn's last prompt queries that fell on the block, 0..1.
  double mass = 0;
  AuditReasons reasons;         ///< of the decision before this reply
  double attended_share = 1.0;  ///< mean of its tokens' shares
};

/// One reply. A token's share: of all times that a decode step of this reply could read it (steps,
/// layers and KV heads counted), how often it did. 1 where no step could.
struct TurnAudit {
  std::string session_id;     ///< empty for plain text
  int32_t turn = 0;           ///< 1 + assistant messages before this reply
  std::string attend_budget;  ///< level 2 as set: "12.5%"
  std::string resident_budget;
  Usage usage;
  int32_t num_steps = 0;        ///< decode steps
  int64_t hot_pages = 0;        ///< sealed pages after the reply, over blocks, layers and KV heads
  int64_t cold_pages = 0;       ///< the same, in their smaller form
  std::vector<int32_t> tokens;  ///< prompt and reply
  std::vector<float> attended_shares;  ///< by token
  std::vector<AuditSpan> spans;        ///< ascending, cover all tokens
  std::vector<AuditBlock> blocks;      ///< ascending, cover what is in the cache
};

}  // namespace ikv
