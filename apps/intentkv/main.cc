// intentkv: one binary, one sub-command for each thing a person does with a model.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "cli_error.h"
#include "cmd_eval_logits.h"
#include "cmd_explain.h"
#include "cmd_inspect.h"
#include "cmd_model.h"
#ifdef IKV_WITH_ENGINE
#include "cmd_bench.h"
#include "cmd_chat.h"
#include "cmd_demo.h"
#include "cmd_eval.h"
#include "cmd_generate.h"
#include "cmd_serve.h"
#endif

namespace ikv {
namespace {

// The sub-command that was being parsed, so that the hint names the right help.
std::string help_hint(const CLI::App& app) {
  for (const CLI::App* command : app.get_subcommands()) {
    return "`" + app.get_name() + " " + command->get_name() + " --help` lists what it takes";
  }
  return "`" + app.get_name() + " --help` lists the commands";
}

// CLI11 tells only that a sub-command is missing; a mistyped one is what the person has to see.
std::string describe(const CLI::ParseError& error, const CLI::App& app, int argc, char** argv) {
  if (argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty()) {
    return "unknown command '" + std::string(argv[1]) + "'";
  }
  return error.what();
}

int run(int argc, char** argv) {
  CLI::App app("Inference for agents: the whole transcript is kept, sessions share one cache.");
  app.name("intentkv");
  app.require_subcommand(1);
  app.set_version_flag("-V,--version", "intentkv " IKV_VERSION);
  app.footer(
      "Examples:\n"
      "  intentkv model get smollm2\n"
      "  intentkv chat -m models/smollm2-135m-instruct-q4_1.gguf\n"
      "  echo 'Once upon a time' | intentkv generate -m model.gguf -n 40\n"
      "Exit codes: 0 success, 1 the work failed, 2 the command line is wrong.");
  int exit_code = kExitOk;
#ifdef IKV_WITH_ENGINE
  add_chat_command(app, exit_code);
  add_serve_command(app, exit_code);
  add_generate_command(app, exit_code);
  add_demo_command(app, exit_code);
  add_bench_command(app, exit_code);
  add_eval_command(app, exit_code);
#endif
  add_model_command(app, exit_code);
  add_inspect_command(app, exit_code);
  add_explain_command(app, exit_code);
  add_eval_logits_command(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    return report_usage_error(describe(error, app, argc, argv) + "; " + help_hint(app));
  }
  return exit_code;
}

}  // namespace
}  // namespace ikv

int main(int argc, char** argv) {
  try {
    return ikv::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return ikv::report_failure({ikv::ErrorCode::kOutOfMemory, "out of memory"});
  } catch (const std::exception& e) {
    return ikv::report_failure({ikv::ErrorCode::kInternal,
                                std::string("unexpected exception, please report: ") + e.what()});
  }
}
