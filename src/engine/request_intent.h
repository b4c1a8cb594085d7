// What level 1 notes of one running request.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/tokenized_chat.h"
#include "engine/turn_intent.h"
#include "intent/query_collector.h"

namespace ikv {

/// Made when a request comes, unless kv_policy is "off". Engine's thread only.
struct RequestIntent {
  QueryCollector span;          ///< queries of the prompt's last tokens
  QueryCollector reply;         ///< of the reply's; empty unless the policy remembers
  std::vector<TokenId> stated;  ///< tokens of the stated intent; empty: none
  std::vector<int32_t> pins;    ///< messages whose pages stay hot
};

/// Blocks of `block_tokens` that hold any token of the `pins` (indices of messages): 1, else 0.
/// Only whole blocks that `chat` fills.
std::vector<uint8_t> pinned_blocks(const TokenizedChat& chat, const std::vector<int32_t>& pins,
                                   int block_tokens);

/// Tokens of the newest message up to the end of the prompt.
std::span<const TokenId> span_words(const TokenizedChat& chat, int32_t last_message);

}  // namespace ikv
