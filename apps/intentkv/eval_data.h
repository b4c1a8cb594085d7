// Recorded conversations for `intentkv eval`.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "core/tokenized_chat.h"
#include "intentkv/message.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace ikv {

/// A question about what the conversation said.
struct EvalQuestion {
  int32_t after_turn = 0;  ///< asked when messages 0..after_turn are in context
  std::string question;
  std::string answer;
  std::string probe;  ///< how far from the fact: "near", "shift1", "end"; empty: not said
  std::string pair;   ///< the same question at other places has the same
};

/// One recorded conversation.
struct EvalConversation {
  std::string id;
  std::vector<Message> messages;
  std::vector<EvalQuestion> questions;
};

/// Reads a JSONL file, one object a line with `messages` in OpenAI's format (arguments of tool
/// calls as text or object) and an optional `id`; or one JSON file that is an array of messages or
/// an object with `messages`. Errors name file and line: kIo, kInvalidFile.
Result<std::vector<EvalConversation>> read_conversations(const std::string& path);

/// One reply to be predicted: tokens [begin, end) of a conversation's tokens, the end mark
/// included.
struct EvalTurn {
  int32_t message = 0;
  LogicalPos begin = 0;
  LogicalPos end = 0;
  Role asked_by = Role::kUser;  ///< of the message before it
};

/// A question as tokens, asked at the end of a turn.
struct EvalNeedle {
  int32_t after_turn = 0;         ///< index of the last turn before it
  std::vector<TokenId> question;  ///< from the turn's end - 1 up to where the answer begins
  std::vector<TokenId> answer;
  std::string probe;
  std::string pair;
};

/// A conversation as the engine would have stored it, cut at the last whole turn that fits.
struct EvalSession {
  std::string id;
  std::vector<TokenId> tokens;
  std::vector<EvalTurn> turns;  ///< of assistant messages with any token
  std::vector<EvalNeedle> needles;
};

/// Renders and tokenises the conversation's questions that fall within the session, into its
/// `needles`. Errors: those of the template and the tokenizer.
Status add_needles(const EvalConversation& conversation, const ChatTemplate& chat_template,
                   const Tokenizer& tokenizer, EvalSession& session);

/// Renders and tokenises, cut to `max_tokens`. Errors: those of the template.
Result<EvalSession> make_eval_session(const EvalConversation& conversation,
                                      const ChatTemplate& chat_template, int32_t max_tokens);

}  // namespace ikv
