#include "line_editor.h"

// libedit's header needs FILE first.
#include <cstdio>
// clang-format off
#include <editline/readline.h>
// clang-format on
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

namespace ikv {
namespace {

constexpr int kMaxHistoryLines = 1000;

volatile std::sig_atomic_t interrupted = 0;
void note_interrupt(int) {
  interrupted = 1;
}

// SIGINT reaches this thread only while a person types: elsewhere it is blocked and stops a reply.
class InterruptibleRead {
 public:
  InterruptibleRead() {
    interrupted = 0;
    struct sigaction action = {};
    action.sa_handler = note_interrupt;  // no SA_RESTART: the read must end
    sigaction(SIGINT, &action, &old_action_);
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &interrupt, &old_mask_);
  }
  ~InterruptibleRead() {
    pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
    sigaction(SIGINT, &old_action_, nullptr);
  }
  InterruptibleRead(const InterruptibleRead&) = delete;
  InterruptibleRead& operator=(const InterruptibleRead&) = delete;

 private:
  struct sigaction old_action_ = {};
  sigset_t old_mask_ = {};
};

}  // namespace

bool LineEditor::on_terminal() {
  return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
}

LineEditor::LineEditor(std::string history_path)
    : interactive_(on_terminal()), history_path_(std::move(history_path)) {
  if (!interactive_) return;
  std::setlocale(LC_CTYPE, "");  // so that libedit moves by characters, not bytes
  rl_readline_name = const_cast<char*>("intentkv");
  using_history();
  stifle_history(kMaxHistoryLines);
  if (!history_path_.empty()) read_history(history_path_.c_str());
}

LineEditor::~LineEditor() {
  if (!interactive_ || history_path_.empty()) return;
  if (write_history(history_path_.c_str()) == 0) chmod(history_path_.c_str(), 0600);
}

LineEnd LineEditor::read(const std::string& prompt, std::string& line) {
  LineEnd end = read_one(prompt, line);
  while (end == LineEnd::kLine && !line.empty() && line.back() == '\\') {
    line.back() = '\n';
    std::string more;
    end = read_one("  ", more);
    line += more;
  }
  return end;
}

LineEnd LineEditor::read_one(const std::string& prompt, std::string& line) {
  return interactive_ ? read_edited(prompt, line) : read_plain(line);
}

LineEnd LineEditor::read_edited(const std::string& prompt, std::string& line) {
  InterruptibleRead scope;
  char* typed = readline(prompt.c_str());
  if (interrupted != 0) {
    std::free(typed);
    std::printf("\n");
    return LineEnd::kInterrupted;
  }
  if (typed == nullptr) return LineEnd::kEndOfInput;
  line = typed;
  std::free(typed);
  if (!line.empty()) add_history(line.c_str());
  return LineEnd::kLine;
}

LineEnd LineEditor::read_plain(std::string& line) {
  if (!std::getline(std::cin, line)) return LineEnd::kEndOfInput;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return LineEnd::kLine;
}

std::string default_history_path() {
  namespace fs = std::filesystem;
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  fs::path folder;
  if (state != nullptr && *state == '/') {
    folder = state;
  } else if (home != nullptr && *home == '/') {
    folder = fs::path(home) / ".local" / "state";
  } else {
    return "";
  }
  folder /= "intentkv";
  std::error_code error;
  fs::create_directories(folder, error);
  return error ? "" : (folder / "chat_history").string();
}

}  // namespace ikv
