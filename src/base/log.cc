#include "base/log.h"

#include <array>
#include <atomic>
#include <cstdio>
#include <string>

namespace ikv {
namespace {
std::atomic<LogLevel> g_level{LogLevel::kWarning};
constexpr std::array<std::string_view, 4> kNames = {"debug", "info", "warning", "error"};
}  // namespace

void set_log_level(LogLevel level) {
  g_level.store(level);
}
LogLevel log_level() {
  return g_level.load();
}

void log(LogLevel level, std::string_view message) {
  if (level < g_level.load() || level == LogLevel::kSilent) return;
  std::string line(kNames[static_cast<size_t>(level)]);
  line += ": ";
  line += message;
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace ikv
