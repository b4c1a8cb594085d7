// `intentkv model calibrate`: fits a model's key codebooks now instead of at its first use.
#pragma once

#include <CLI/CLI.hpp>

namespace ikv {

/// Adds the sub-command to `model`. Its run sets `exit_code` (see cli_error.h).
void add_calibrate_command(CLI::App& model, int& exit_code);

}  // namespace ikv
