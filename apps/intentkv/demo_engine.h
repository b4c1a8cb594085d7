// The demo's first half: a recorded session on a real engine, turn by turn.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "intentkv/audit.h"
#include "intentkv/config.h"
#include "result_json.h"

namespace ikv {

/// What a session cost on one engine.
struct DemoRun {
  int32_t num_turns = 0;
  int64_t sent_tokens = 0;       ///< prompts of all turns: the history is sent again each time
  int64_t evaluated_tokens = 0;  ///< of those, run through the model
  int64_t reply_us = 0;          ///< the last reply's decode time
  int32_t reply_tokens = 0;
  std::string answer;                      ///< to the last question
  std::shared_ptr<const TurnAudit> audit;  ///< of the last turn
};

/// Sends the session's turns as an agent would: each request carries the whole history, in which
/// recorded replies stand. To the last question, after which nothing is recorded, the model itself
/// answers with at most `max_tokens`, greedily. Errors: those of the engine.
Result<DemoRun> play_session(const EngineConfig& config, const Conversation& session,
                             int max_tokens);

}  // namespace ikv
