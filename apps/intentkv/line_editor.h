// Reads a person's lines: with editing and history on a terminal (libedit), plainly from a pipe.
#pragma once

#include <memory>
#include <string>

namespace ikv {

/// What reading a line ended with.
enum class LineEnd {
  kLine,         ///< a line was read
  kInterrupted,  ///< Ctrl-C: what was typed is dropped
  kEndOfInput,   ///< Ctrl-D, or the pipe's end
};

/// Not thread-safe. While a terminal's line is read, SIGINT is handled here.
class LineEditor {
 public:
  /// `history_path`: read now and written at the end; empty: no history is kept. A history that
  /// cannot be read or written is not worth an error.
  explicit LineEditor(std::string history_path);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  /// Whether a person sits at a terminal on both ends.
  static bool on_terminal();
  bool interactive() const { return terminal_ != nullptr; }

  /// The next line, without its end, into `line`. A backslash before the end joins the next line.
  LineEnd read(const std::string& prompt, std::string& line);

 private:
  LineEnd read_one(const std::string& prompt, std::string& line);

  struct Terminal;
  std::unique_ptr<Terminal> terminal_;
  std::string history_path_;
};

/// $XDG_STATE_HOME/intentkv/chat_history, or under ~/.local/state; empty without a home. Creates
/// the folder.
std::string default_history_path();

}  // namespace ikv
