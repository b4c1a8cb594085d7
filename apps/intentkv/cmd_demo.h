// `intentkv demo`: one session on the full cache and on IntentKV, side by side.
#pragma once

#include <CLI/CLI.hpp>

namespace ikv {

/// Adds the sub-command; `exit_code` gets its outcome.
void add_demo_command(CLI::App& app, int& exit_code);

}  // namespace ikv
