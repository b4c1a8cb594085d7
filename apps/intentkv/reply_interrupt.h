// Ctrl-C stops the reply that is being made, not the program.
#pragma once

#include <memory>
#include <thread>

#include "intentkv/generation.h"

namespace ikv {

/// Blocks the signals that ReplyInterrupt waits for, in this thread and those that it starts later.
/// Call it before the Engine is created, so that none of its threads takes the signal. Where nobody
/// sits at a terminal it is not called, and Ctrl-C ends the program.
void block_reply_interrupts();

/// While it lives, SIGINT cancels `generation`. Needs block_reply_interrupts() before.
class ReplyInterrupt {
 public:
  explicit ReplyInterrupt(std::shared_ptr<Generation> generation);
  ~ReplyInterrupt();
  ReplyInterrupt(const ReplyInterrupt&) = delete;
  ReplyInterrupt& operator=(const ReplyInterrupt&) = delete;

 private:
  std::thread waiter_;
};

}  // namespace ikv
