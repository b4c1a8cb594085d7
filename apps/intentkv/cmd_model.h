// `intentkv model`: fetches models, lists those that can be fetched, calibrates.
#pragma once

#include <CLI/CLI.hpp>

namespace ikv {

/// Adds the sub-command. Its run sets `exit_code` (see cli_error.h) after one line on stderr.
void add_model_command(CLI::App& app, int& exit_code);

}  // namespace ikv
