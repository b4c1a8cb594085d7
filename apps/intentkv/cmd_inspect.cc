#include "cmd_inspect.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli_error.h"
#include "model_summary.h"

namespace ikv {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  std::string path;
  bool json = false;
  bool show_template = false;
};

Json to_json(const ModelSummary& summary) {
  Json json = {{"path", summary.path},
               {"file_bytes", summary.file_bytes},
               {"gguf_version", summary.gguf_version},
               {"name", summary.name},
               {"architecture", summary.architecture},
               {"supported", summary.config.has_value()},
               {"parameters", summary.num_parameters},
               {"weight_bytes", summary.bytes_by_type},
               {"tokenizer",
                {{"model", summary.tokenizer_model},
                 {"pre", summary.pre_tokenizer},
                 {"vocab_size", summary.vocab_size}}},
               {"chat_template", nullptr}};
  if (!summary.chat_template.empty()) json["chat_template"] = summary.chat_template;
  if (!summary.config) {
    json["refusal"] = summary.refusal;
    return json;
  }
  const ModelConfig& config = *summary.config;
  json["context_tokens"] = config.context_tokens;
  json["layers"] = config.num_layers;
  json["hidden_size"] = config.hidden_size;
  json["ffn_size"] = config.ffn_size;
  json["heads"] = config.num_heads;
  json["kv_heads"] = config.num_kv_heads;
  json["head_dim"] = config.head_dim;
  json["tied_output"] = config.tied_output;
  json["kv_bytes_per_token"] = summary.kv_bytes_per_token;
  return json;
}

void print_line(const char* label, const std::string& value) {
  std::printf("%-16s %s\n", label, one_line(value).c_str());
}

void print_config(const ModelSummary& summary) {
  const ModelConfig& config = *summary.config;
  std::printf("%-16s %d tokens\n", "context", config.context_tokens);
  std::printf("%-16s %d, hidden size %d, feed-forward %d%s\n", "layers", config.num_layers,
              config.hidden_size, config.ffn_size,
              config.tied_output ? ", output tied to the embedding" : "");
  std::printf("%-16s %d query, %d KV, %d channels each\n", "heads", config.num_heads,
              config.num_kv_heads, config.head_dim);
  if (summary.kv_bytes_per_token.empty()) return;
  std::printf("%-16s", "cache per token");
  const char* separator = " ";
  for (const auto& [format, bytes] : summary.kv_bytes_per_token) {
    std::printf("%s%s %.0f B", separator, format.c_str(), bytes);
    separator = ", ";
  }
  std::printf("\n");
}

void print_text(const ModelSummary& summary, bool show_template) {
  print_line("file", summary.path);
  std::printf("%-16s GGUF v%u, %.1f MB\n", "format", summary.gguf_version,
              static_cast<double>(summary.file_bytes) / 1e6);
  print_line("name", summary.name.empty() ? "(none)" : summary.name);
  print_line("architecture", summary.architecture.empty() ? "(none)" : summary.architecture);
  std::printf("%-16s %.1f million\n", "parameters",
              static_cast<double>(summary.num_parameters) / 1e6);
  std::string weights;
  for (const auto& [type, bytes] : summary.bytes_by_type) {
    char one[64];
    std::snprintf(one, sizeof one, "%s%s %.1f MB", weights.empty() ? "" : ", ", type.c_str(),
                  static_cast<double>(bytes) / 1e6);
    weights += one;
  }
  print_line("weights", weights.empty() ? "(none)" : weights);
  if (summary.config) {
    print_config(summary);
  } else {
    print_line("cannot be run", summary.refusal);
  }
  print_line("tokenizer", summary.tokenizer_model + (summary.pre_tokenizer.empty() ? "" : "/") +
                              summary.pre_tokenizer + ", " + std::to_string(summary.vocab_size) +
                              " tokens");
  if (summary.chat_template.empty()) {
    print_line("chat template", "(none)");
  } else if (show_template) {
    std::printf("chat template:\n%s\n", summary.chat_template.c_str());
  } else {
    print_line("chat template",
               std::to_string(summary.chat_template.size()) + " characters; --template prints it");
  }
}

int run_inspect(const InspectOptions& options) {
  Result<GgufFile> file = GgufFile::open(options.path);
  if (!file.ok()) return report_failure(file.error());
  Result<ModelSummary> summary = summarise_model(*file);
  if (!summary.ok()) return report_failure(summary.error());
  if (options.json) {
    std::printf("%s\n",
                to_json(*summary).dump(2, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    print_text(*summary, options.show_template);
  }
  return kExitOk;
}

}  // namespace

void add_inspect_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Show what a model file holds");
  command->footer(
      "Examples:\n"
      "  intentkv inspect model.gguf\n"
      "  intentkv inspect model.gguf --json | jq .kv_bytes_per_token");
  command->add_option("file", options->path, "GGUF file")->required();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->add_flag("--template", options->show_template, "Print the chat template too");
  command->callback([options, &exit_code] { exit_code = run_inspect(*options); });
}

}  // namespace ikv
