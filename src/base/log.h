// Log lines on stderr; one line each, never client text above the debug level.
#pragma once

#include <string_view>

namespace ikv {

enum class LogLevel { kDebug = 0, kInfo, kWarning, kError, kSilent };

/// Lines below this level are dropped. Thread-safe. The default is kWarning.
void set_log_level(LogLevel level);
LogLevel log_level();

/// Writes "level: message\n" to stderr in one call. Thread-safe.
void log(LogLevel level, std::string_view message);

}  // namespace ikv
