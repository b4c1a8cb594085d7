// `intentkv eval-logits`: raw logits of given tokens, for comparison with other implementations.
#pragma once

#include <CLI/CLI.hpp>

namespace ikv {

/// Adds the sub-command. Its run sets `exit_code` to kExitOk, or to kExitFailed after one line on
/// stderr.
void add_eval_logits_command(CLI::App& app, int& exit_code);

}  // namespace ikv
