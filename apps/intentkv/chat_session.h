// The conversation behind `intentkv chat`: messages, replies, and the commands that start with '/'.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "audit_json.h"
#include "intentkv/engine.h"
#include "result_json.h"

namespace ikv {

/// Called with each piece of a reply's text.
using TextCallback = std::function<void(std::string_view)>;

/// One conversation on an engine. Not thread-safe.
class ChatSession {
 public:
  /// `interruptible`: Ctrl-C stops a reply; needs block_reply_interrupts() before.
  ChatSession(Engine& engine, GenerationConfig generation, Conversation conversation,
              bool interruptible);

  /// From now on each reply's audit goes to this file.
  void set_audit_file(AuditFile file) { audit_file_ = std::move(file); }

  /// Adds a message, without a reply.
  void add(Message message);

  /// Lets the model reply to what is there and adds its message. A reply that Ctrl-C stopped is
  /// kept as far as it came. On an error the conversation is as before.
  Result<GenerationResult> reply(const TextCallback& on_text);

  /// Drops the last message: the one that a failed reply() answered.
  void drop_last();

  /// What a line that starts with '/' asks for: the text to show. Errors: kInvalidArgument for an
  /// unknown command or wrong use, kIo.
  Result<std::string> run_command(const std::string& line);

  /// True after /quit.
  bool quitting() const { return quitting_; }
  const Conversation& conversation() const { return conversation_; }

 private:
  Result<std::string> set_system(const std::string& text);
  std::string stats() const;

  Engine& engine_;
  GenerationConfig generation_;
  Conversation conversation_;
  bool interruptible_;
  AuditFile audit_file_;
  Usage last_usage_;
  int num_replies_ = 0;
  bool quitting_ = false;
};

/// "12 new + 30 cached prompt tokens, 45 tokens/s …": the cost of one reply, in one line.
std::string describe_usage(const Usage& usage);

}  // namespace ikv
