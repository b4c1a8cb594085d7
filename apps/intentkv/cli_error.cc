#include "cli_error.h"

#include <cstdio>

namespace ikv {
namespace {

void print_error(const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "intentkv: error: %s\n", one_line(message).c_str());
}

}  // namespace

std::string one_line(const std::string& text) {
  std::string line;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      line += escaped;
    } else {
      line += c;
    }
  }
  return line;
}

int report_failure(const Error& error) {
  print_error(error.message);
  return kExitFailed;
}

int report_usage_error(const std::string& message) {
  print_error(message);
  return kExitUsage;
}

}  // namespace ikv
