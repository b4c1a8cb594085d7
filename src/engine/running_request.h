// One generation inside the engine: what it still has to evaluate and what it has made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tokenized_chat.h"
#include "engine/audit_recorder.h"
#include "engine/generation_state.h"
#include "engine/kv_policy.h"
#include "engine/reply.h"
#include "engine/request_intent.h"
#include "engine/residency.h"
#include "engine/session_store.h"
#include "intentkv/config.h"
#include "intentkv/message.h"

namespace ikv {

/// Owned by the engine's thread from submission to end.
struct RunningRequest {
  std::shared_ptr<GenerationState> state;
  KvShareKey share_key;
  bool is_chat = false;
  bool expects_tool_calls = false;  ///< tools were offered: the reply is parsed for calls
  std::string session_key;          ///< of SessionStore; empty: found by content
  int max_tokens = -1;
  std::vector<Message> messages;
  TokenizedChat prompt;  ///< rendered; after admission laid over the session's transcript
  std::unique_ptr<Reply> reply;

  // Set at admission.
  SessionRecord* record = nullptr;  ///< null: plain text
  KvSequenceId sequence = 0;
  bool has_sequence = false;
  int32_t num_evaluated = 0;  ///< prompt tokens whose keys and values are in the pool
  int32_t limit_tokens = 0;   ///< promised: prompt and reply cannot outgrow this now
  int32_t wanted_tokens = 0;  ///< what it would grow to if memory allowed

  AttendStats attend_stats;               ///< of level 2, over the reply's steps
  AttendStats last_step;                  ///< of the last step alone
  ResidencyStats resident_stats;          ///< of level 1
  std::unique_ptr<AuditRecorder> audit;   ///< null: nobody asked
  std::unique_ptr<RequestIntent> intent;  ///< null: kv_policy is off
  Usage usage;
  int64_t submitted_us = 0;
  int64_t started_us = 0;
  int64_t first_token_us = 0;

  int32_t num_prompt_tokens() const { return static_cast<int32_t>(prompt.tokens.size()); }
  bool decoding() const { return num_evaluated == num_prompt_tokens(); }
  int32_t num_tokens() const {
    return num_prompt_tokens() + static_cast<int32_t>(reply->tokens().size());
  }
};

}  // namespace ikv
