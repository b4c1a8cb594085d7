#include "reply_interrupt.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace ikv {
namespace {

// SIGUSR1 ends the wait: sent by the destructor to its own thread only.
sigset_t waited_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

void block_reply_interrupts() {
  sigset_t set = waited_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

ReplyInterrupt::ReplyInterrupt(std::shared_ptr<Generation> generation)
    : waiter_([generation = std::move(generation)] {
        sigset_t set = waited_signals();
        for (int signal = 0; sigwait(&set, &signal) == 0 && signal == SIGINT;) generation->cancel();
      }) {}

ReplyInterrupt::~ReplyInterrupt() {
  pthread_kill(waiter_.native_handle(), SIGUSR1);
  waiter_.join();
}

}  // namespace ikv
