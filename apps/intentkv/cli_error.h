// How every sub-command reports failure: one line on stderr and an exit code.
#pragma once

#include <string>

#include "base/result.h"

namespace ikv {

/// Exit codes of the program.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,  ///< the work failed: file, model, memory, network
  kExitUsage = 2,   ///< the command line is wrong
};

/// `text` as one printable line: control characters, line breaks included, become '\n' or '\xNN'.
std::string one_line(const std::string& text);

/// Prints `intentkv: error: MESSAGE` on stderr and returns kExitFailed.
int report_failure(const Error& error);

/// The same for a mistake on the command line; returns kExitUsage.
int report_usage_error(const std::string& message);

}  // namespace ikv
