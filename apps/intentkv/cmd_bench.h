// `intentkv bench`: prefill and decode speed, in the manner of llama-bench.
#pragma once

#include <CLI/CLI.hpp>

namespace ikv {

/// Adds the sub-command. Its run sets `exit_code` (see cli_error.h) after one line on stderr.
void add_bench_command(CLI::App& app, int& exit_code);

}  // namespace ikv
