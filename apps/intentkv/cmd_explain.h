// `intentkv explain`: what the cache policy did for a turn, from an audit file.
#pragma once

#include <CLI/CLI.hpp>

namespace ikv {

/// Adds the sub-command; `exit_code` gets its outcome.
void add_explain_command(CLI::App& app, int& exit_code);

}  // namespace ikv
