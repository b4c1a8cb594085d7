#include "engine_options.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>

#include "flag_checks.h"
#include "model_catalog.h"

namespace ikv {
namespace {

// A fetched model may be called by its name; a file of that name comes first.
std::string resolve_model_path(const std::string& model) {
  const CatalogModel* known = find_catalog_model(model);
  if (known == nullptr || std::filesystem::exists(model)) return model;
  return "models/" + std::string(known->file_name);
}

constexpr int kMaxThreads = 1024;
constexpr int kMaxContextTokens = 16 * 1024 * 1024;
constexpr int kMaxNewTokens = kMaxContextTokens;

// One line that is overwritten; long work shall not look like a hang.
void show_progress(std::string_view what, size_t done, size_t all) {
  std::fprintf(stderr, "\r%.*s: %zu of %zu%s", static_cast<int>(what.size()), what.data(), done,
               all, done == all ? "\n" : "");
}

void add_policy_flags(CLI::App& command, EngineConfig& config) {
  const char* group = "Cache policy";
  command
      .add_option("--kv-policy", config.kv_policy,
                  "intent: each turn and step keeps and reads what it is about; off: everything")
      ->check(CLI::IsMember({"off", "intent"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-attend", config.kv_attend,
                  "Level 2: cached tokens that a step reads: 12.5%, 900, mass=0.98 or all; "
                  "default: 12.5%")
      ->type_name("BUDGET")
      ->group(group);
  command
      .add_option("--kv-attend-min", config.kv_attend_min_tokens,
                  "Shorter histories are not pruned")
      ->check(integer_between(1, kMaxContextTokens))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-resident", config.kv_resident,
                  "Level 1: cache in full format: 25%, 256MiB or all; the rest becomes int4; "
                  "default: 25%")
      ->type_name("BUDGET")
      ->group(group);
}

}  // namespace

EngineConfig EngineOptions::resolve() const {
  EngineConfig resolved = config;
  resolved.model_path = resolve_model_path(config.model_path);
  if (!kv_memory.empty()) {
    Result<uint64_t> bytes = parse_bytes(kv_memory);  // already checked by the flag
    if (bytes.ok()) resolved.kv_memory_bytes = bytes.value();
  }
  if (isatty(2) != 0) resolved.on_progress = show_progress;
  return resolved;
}

void add_engine_options(CLI::App& command, EngineOptions& options) {
  EngineConfig& config = options.config;
  command.add_option("-m,--model", config.model_path, "GGUF file, or the name of a fetched model")
      ->required()
      ->type_name("FILE")
      ->group("Engine");
  command
      .add_option("-c,--ctx-size", config.context_tokens, "Longest session; default: the model's")
      ->check(integer_between(1, kMaxContextTokens))
      ->type_name("TOKENS")
      ->group("Engine");
  command
      .add_option("-t,--threads", config.num_threads, "Threads that compute; default: all cores")
      ->check(integer_between(1, kMaxThreads))
      ->type_name("N")
      ->group("Engine");
  const std::vector<std::string> formats = {"f32", "f16", "bf16", "int8", "q8_0", "int4", "q4_0"};
  command.add_option("--cache-type-k", config.cache_type_k, "Format of cached keys")
      ->check(CLI::IsMember(formats))
      ->type_name("TYPE")
      ->capture_default_str()
      ->group("Engine");
  command.add_option("--cache-type-v", config.cache_type_v, "Format of cached values")
      ->check(CLI::IsMember(formats))
      ->type_name("TYPE")
      ->capture_default_str()
      ->group("Engine");
  command
      .add_option("--kv-memory", options.kv_memory,
                  "Hard cap of all cache memory; default: a quarter of free memory")
      ->check(byte_size())
      ->type_name("SIZE")
      ->group("Engine");
  command.add_option("--block-tokens", config.block_tokens, "Tokens of a cache block, 16 to 128")
      ->check(integer_between(16, 128))
      ->type_name("N")
      ->capture_default_str()
      ->group("Engine");
  add_policy_flags(command, config);
}

void add_audit_options(CLI::App& command, AuditOptions& options) {
  const char* group = "Cache policy";
  CLI::Option* audit =
      command
          .add_option("--audit", options.path,
                      "Write what was kept and pruned for each reply, one JSON object a line; "
                      "`intentkv explain FILE` shows it")
          ->type_name("FILE")
          ->group(group);
  command
      .add_flag("--audit-text", options.with_text,
                "The audit holds the conversation's text too, so that explain can mark it")
      ->needs(audit)
      ->group(group);
}

GenerationConfig GenerationOptions::resolve() const {
  GenerationConfig resolved = config;
  if (seed >= 0) resolved.seed = static_cast<uint64_t>(seed);
  for (const std::string& text : logit_bias) {
    Status parsed = parse_logit_bias(text, resolved.logit_bias);  // already checked by the flag
    (void)parsed;
  }
  return resolved;
}

void add_generation_options(CLI::App& command, GenerationOptions& options) {
  GenerationConfig& config = options.config;
  auto number = [&](const char* name, auto& value, double low, double high, const char* help) {
    command.add_option(name, value, help)
        ->check(number_between(low, high))
        ->type_name("X")
        ->capture_default_str()
        ->group("Sampling");
  };
  auto integer = [&](const char* name, auto& value, int64_t low, int64_t high, const char* help) {
    return command.add_option(name, value, help)
        ->check(integer_between(low, high))
        ->type_name("N")
        ->capture_default_str()
        ->group("Sampling");
  };
  integer("-n,--n-predict", config.max_tokens, -1, kMaxNewTokens,
          "Most new tokens; -1: until the model stops");
  number("--temp", config.temperature, 0, 100, "Temperature; 0: greedy");
  integer("--top-k", config.top_k, 0, 1 << 24, "Keep the k likeliest tokens; 0: off");
  number("--top-p", config.top_p, 0, 1, "Keep the smallest set with this probability; 1: off");
  number("--min-p", config.min_p, 0, 1, "Keep tokens above this share of the best's; 0: off");
  number("--repeat-penalty", config.repeat_penalty, 0.01, 100, "Divide repeated logits; 1: off");
  integer("--repeat-last-n", config.repeat_last_n, -1, kMaxContextTokens,
          "Tokens that penalties look at; -1: all");
  number("--presence-penalty", config.presence_penalty, -100, 100, "Subtract once if present");
  number("--frequency-penalty", config.frequency_penalty, -100, 100, "Subtract per occurrence");
  integer("--seed", options.seed, -1, std::numeric_limits<int64_t>::max(),
          "The same seed gives the same text; -1: random");
  command.add_option("--logit-bias", options.logit_bias, "TOKEN+BIAS, TOKEN-BIAS or TOKEN-inf")
      ->check(CLI::Validator(
          [](std::string& text) {
            std::map<int32_t, float> ignored;
            Status parsed = parse_logit_bias(text, ignored);
            return parsed.ok() ? std::string() : parsed.error().message;
          },
          "", "logit bias"))
      ->allow_extra_args(false)
      ->type_name("BIAS")
      ->group("Sampling");
  command.add_option("--stop", config.stop, "End the reply before this text; may be repeated")
      ->allow_extra_args(false)
      ->type_name("TEXT")
      ->group("Sampling");
  command.add_flag("--ignore-eos", config.ignore_eos, "Go on after an end-of-generation token")
      ->group("Sampling");
}

}  // namespace ikv
