// `intentkv serve`: the HTTP server.
#pragma once

#include <CLI/CLI.hpp>

namespace ikv {

/// Adds the sub-command. Its run sets `exit_code` (see cli_error.h) after one line on stderr.
void add_serve_command(CLI::App& app, int& exit_code);

}  // namespace ikv
