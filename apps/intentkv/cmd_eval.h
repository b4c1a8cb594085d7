// `intentkv eval`: what pruning costs and buys on recorded conversations.
#pragma once

#include <CLI/CLI.hpp>

namespace ikv {

/// Adds the sub-command; its callback sets `exit_code`.
void add_eval_command(CLI::App& app, int& exit_code);

}  // namespace ikv
