// What a session remembers of its conversation: the messages and the tokens that stand for them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/message.h"
#include "core/tokenized_chat.h"
#include "intentkv/generation.h"

namespace ikv {

/// The logical transcript. `chat.tokens[i]` is the token at logical position i. For a plain-text
/// session `messages` is empty and one span with message -1 covers everything.
struct Transcript {
  std::vector<Message> messages;
  TokenizedChat chat;
};

/// True if two messages mean the same to the model: role, name, text (null equals empty) and tool
/// calls with their arguments compared as parsed JSON. Ids of calls are the client's and not
/// compared.
bool messages_equal(const Message& a, const Message& b);

/// A re-sent conversation laid over the stored one.
struct TranscriptMatch {
  TokenizedChat chat;         ///< the conversation to evaluate: stored tokens where messages agree
  LogicalPos num_common = 0;  ///< tokens at the front that are the stored ones
  std::optional<Divergence> divergence;  ///< set when stored tokens were lost
};

/// Lays `messages`, rendered and tokenised as `rendered`, over `stored`. Where messages are equal
/// the stored tokens win, even where tokenising again would split differently; tokens are compared
/// only within the template's own text and within the first message that differs. O(tokens).
TranscriptMatch match_transcript(const Transcript& stored, std::span<const Message> messages,
                                 const TokenizedChat& rendered);

/// Appends a generated reply's tokens as the content of message `message_index`; the generation
/// prompt must already be the last span.
void append_reply(Transcript& transcript, std::span<const TokenId> tokens, int32_t message_index);

/// Cuts the transcript to `num_tokens` tokens; messages whose tokens are gone or cut are removed.
void truncate_transcript(Transcript& transcript, LogicalPos num_tokens);

}  // namespace ikv
