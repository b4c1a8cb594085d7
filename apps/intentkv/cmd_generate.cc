#include "cmd_generate.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "audit_json.h"
#include "cli_error.h"
#include "engine_options.h"
#include "file_io.h"
#include "flag_checks.h"
#include "intentkv/engine.h"
#include "result_json.h"

namespace ikv {
namespace {

struct GenerateOptions {
  EngineOptions engine;
  GenerationOptions generation;
  AuditOptions audit;
  std::string prompt;
  bool has_prompt = false;
  std::string prompt_file;
  bool chat = false;
  bool json = false;
  bool verbose = false;
};

Result<std::string> read_prompt(const GenerateOptions& options) {
  if (options.has_prompt) return options.prompt;
  return options.prompt_file.empty() ? read_standard_input() : read_file(options.prompt_file);
}

Result<std::shared_ptr<Generation>> start(Engine& engine, const GenerateOptions& options,
                                          std::string prompt) {
  if (options.chat) {
    ChatRequest request;
    Message message;
    message.content = std::move(prompt);
    request.messages.push_back(std::move(message));
    request.generation = options.generation.resolve();
    request.audit = !options.audit.path.empty();
    return engine.chat(std::move(request));
  }
  CompletionRequest request;
  request.prompt = std::move(prompt);
  request.generation = options.generation.resolve();
  request.audit = !options.audit.path.empty();
  return engine.complete(std::move(request));
}

// Prints text as it comes, unless the whole is wanted as JSON.
Result<GenerationResult> stream(Generation& generation, bool print) {
  for (bool finished = false; !finished;) {
    Result<GenerationEvent> event = generation.next();
    if (!event.ok()) return event.error();
    if (print) {
      std::fwrite(event->text.data(), 1, event->text.size(), stdout);
      std::fflush(stdout);
    }
    finished = event->finished;
  }
  return generation.wait();
}

void print_timings(const GenerationResult& result) {
  const auto timings = generation_to_json(result)["timings"];
  std::fprintf(
      stderr,
      "%d prompt tokens (%d from the cache) in %.0f ms, %.1f tokens/s; "
      "%d new tokens in %.0f ms, %.1f tokens/s\n",
      result.usage.prompt_tokens, result.usage.cached_tokens, timings["prefill_ms"].get<double>(),
      timings["prefill_tokens_per_second"].get<double>(), result.usage.completion_tokens,
      timings["decode_ms"].get<double>(), timings["decode_tokens_per_second"].get<double>());
}

int run_generate(const GenerateOptions& options) {
  if (options.has_prompt && !options.prompt_file.empty()) {
    return report_usage_error("--prompt and --file exclude each other");
  }
  if (!options.has_prompt && options.prompt_file.empty() && isatty(STDIN_FILENO) != 0) {
    return report_usage_error("no prompt: give --prompt, --file, or pipe it to standard input");
  }
  Result<std::string> prompt = read_prompt(options);
  if (!prompt.ok()) return report_failure(prompt.error());
  Result<AuditFile> audit = AuditFile::open(options.audit.path, options.audit.with_text);
  if (!audit.ok()) return report_failure(audit.error());
  Result<std::unique_ptr<Engine>> engine = Engine::create(options.engine.resolve());
  if (!engine.ok()) return report_failure(engine.error());
  Result<std::shared_ptr<Generation>> generation =
      start(*engine.value(), options, std::move(prompt).value());
  if (!generation.ok()) return report_failure(generation.error());
  Result<GenerationResult> result = stream(*generation.value(), !options.json);
  if (!result.ok()) return report_failure(result.error());
  const Status audited = audit->write(*engine.value(), result.value());
  if (!audited.ok()) return report_failure(audited.error());
  if (options.json) {
    nlohmann::ordered_json json = generation_to_json(result.value());
    json["model"] = engine.value()->model_info().name;
    using Json = nlohmann::ordered_json;
    std::printf("%s\n", json.dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    std::printf("\n");
  }
  if (options.verbose) print_timings(result.value());
  if (std::fflush(stdout) != 0) {
    return report_failure({ErrorCode::kIo, "cannot write to standard output"});
  }
  return kExitOk;
}

}  // namespace

void add_generate_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<GenerateOptions>();
  CLI::App* command = app.add_subcommand("generate", "Continue a text, from a flag, file or pipe");
  command->footer(
      "Examples:\n"
      "  intentkv generate -m model.gguf -p 'The capital of France is' -n 16 --temp 0\n"
      "  git diff | intentkv generate -m model.gguf --chat -n 200 --json");
  CLI::Option* prompt =
      command->add_option("-p,--prompt", options->prompt, "Text to continue")->type_name("TEXT");
  command->add_option("-f,--file", options->prompt_file, "Read the prompt from a file")
      ->type_name("FILE");
  command->add_flag("--chat", options->chat,
                    "Treat the prompt as a user's message, through the model's chat template");
  command->add_flag("--json", options->json, "Print one JSON object at the end instead of text");
  command->add_flag("-v,--verbose", options->verbose, "Print the timings on standard error");
  command
      ->add_option("--logprobs", options->generation.config.num_logprobs,
                   "Alternatives to report per token in --json")
      ->check(integer_between(0, 100))
      ->type_name("N");
  add_engine_options(*command, options->engine);
  add_generation_options(*command, options->generation);
  add_audit_options(*command, options->audit);
  command->callback([options, prompt, &exit_code] {
    options->has_prompt = prompt->count() > 0;
    exit_code = run_generate(*options);
  });
}

}  // namespace ikv
