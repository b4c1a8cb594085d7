#include "line_editor.h"

#include <histedit.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
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

// One character of the locale's encoding for libedit: 1, or 0 at the end of input. libedit's own
// reader swallows the first interrupt; this one ends the line at once.
int read_character(EditLine*, wchar_t* character) {
  std::mbstate_t state = {};
  for (;;) {
    char byte = 0;
    const ssize_t count = interrupted != 0 ? -1 : ::read(STDIN_FILENO, &byte, 1);
    if (count < 0 && errno == EINTR && interrupted == 0) continue;  // such as a resized window
    if (count <= 0) return 0;
    const size_t used = std::mbrtowc(character, &byte, 1, &state);
    if (used == static_cast<size_t>(-2)) continue;  // more bytes to come
    if (used == static_cast<size_t>(-1)) {
      state = {};  // not a character of this locale: dropped, as if not typed
      continue;
    }
    return 1;
  }
}

}  // namespace

struct LineEditor::Terminal {
  Terminal() {
    std::setlocale(LC_CTYPE, "");  // so that libedit moves by characters, not bytes
    history(past, &event, H_SETSIZE, kMaxHistoryLines);
    history(past, &event, H_SETUNIQUE, 1);
    el_set(editor, EL_CLIENTDATA, this);
    el_set(editor, EL_PROMPT, &Terminal::show_prompt);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_HIST, history, past);
    el_set(editor, EL_GETCFN, read_character);
    el_source(editor, nullptr);  // the user's ~/.editrc
  }
  ~Terminal() {
    el_end(editor);
    history_end(past);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  static char* show_prompt(EditLine* editor) {
    Terminal* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self->prompt.data();
  }

  LineEnd read(const std::string& new_prompt, std::string& line) {
    prompt = new_prompt;
    InterruptibleRead scope;
    int length = 0;
    const char* typed = el_gets(editor, &length);
    if (interrupted != 0) {
      el_reset(editor);
      std::printf("\n");
      return LineEnd::kInterrupted;
    }
    if (typed == nullptr || length <= 0) return LineEnd::kEndOfInput;
    line.assign(typed, static_cast<size_t>(length));
    if (line.back() == '\n') line.pop_back();
    if (!line.empty()) history(past, &event, H_ENTER, line.c_str());
    return LineEnd::kLine;
  }

  EditLine* editor = el_init("intentkv", stdin, stdout, stderr);
  History* past = history_init();
  HistEvent event = {};
  std::string prompt;
};

bool LineEditor::on_terminal() {
  return isatty(STDIN_FILENO) != 0 && isatty(STDOUT_FILENO) != 0;
}

LineEditor::LineEditor(std::string history_path) : history_path_(std::move(history_path)) {
  if (!on_terminal()) return;
  terminal_ = std::make_unique<Terminal>();
  if (history_path_.empty()) return;
  history(terminal_->past, &terminal_->event, H_LOAD, history_path_.c_str());
}

LineEditor::~LineEditor() {
  if (!terminal_ || history_path_.empty()) return;
  if (history(terminal_->past, &terminal_->event, H_SAVE, history_path_.c_str()) >= 0) {
    chmod(history_path_.c_str(), 0600);  // what a person said to a model is private
  }
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
  if (terminal_) return terminal_->read(prompt, line);
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
