#include "cmd_bench.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench_machine.h"
#include "bench_plan.h"
#include "bench_report.h"
#include "bench_roofline.h"
#include "bench_runner.h"
#include "cli_error.h"
#include "engine_options.h"
#include "file_io.h"
#include "flag_checks.h"
#include "intentkv/engine.h"

namespace ikv {
namespace {

using Json = nlohmann::ordered_json;

struct BenchOptions {
  EngineOptions engine;
  std::vector<int> prompt_sizes = {512};
  std::vector<int> generation_sizes = {64};
  std::vector<int> depths = {0};
  int repetitions = 5;
  bool json = false;
  std::string json_file;
};

Json settings_of(const BenchOptions& options, const EngineConfig& config, const Engine& engine,
                 const MachineSpeed& speed) {
  return {{"model", engine.model_info().name},
          {"parameters", engine.model_info().num_parameters},
          {"weight_bytes", engine.stats().weight_bytes},
          {"threads", config.num_threads},
          {"cache_type_k", config.cache_type_k},
          {"cache_type_v", config.cache_type_v},
          {"repetitions", options.repetitions},
          {"cpu", cpu_name()},
          {"memory_gb_per_second", speed.bytes_per_second / 1e9},
          {"arithmetic_gop_per_second", speed.operations_per_second / 1e9},
          {"version", IKV_VERSION}};
}

Result<std::vector<BenchResult>> measure(Engine& engine, const BenchOptions& options,
                                         const ModelCosts& costs, const MachineSpeed& speed) {
  BenchRunner runner(engine);
  std::vector<BenchResult> results;
  for (const BenchCase& bench_case :
       plan_bench(options.prompt_sizes, options.generation_sizes, options.depths)) {
    Result<std::vector<double>> speeds = runner.run(bench_case, options.repetitions);
    if (!speeds.ok()) return speeds.error();
    results.push_back({bench_case, std::move(speeds).value(),
                       roofline_tokens_per_second(bench_case, costs, speed)});
    std::fprintf(stderr, "%s done\n", bench_case.name().c_str());
  }
  return results;
}

int run_bench(const BenchOptions& options) {
  EngineConfig config = options.engine.resolve();
  if (config.num_threads == 0) config.num_threads = usable_cores();
  Result<ModelCosts> costs = read_model_costs(config);
  if (!costs.ok()) return report_failure(costs.error());
  const MachineSpeed speed = measure_machine(config.num_threads);
  Result<std::unique_ptr<Engine>> engine = Engine::create(config);
  if (!engine.ok()) return report_failure(engine.error());
  costs->weight_bytes = static_cast<double>(engine.value()->stats().weight_bytes);
  Result<std::vector<BenchResult>> results = measure(*engine.value(), options, *costs, speed);
  if (!results.ok()) return report_failure(results.error());
  const std::string json =
      bench_to_json(*results, settings_of(options, config, *engine.value(), speed)).dump(2) + "\n";
  if (options.json) {
    std::printf("%s", json.c_str());
  } else {
    std::printf("%s, %d threads, %s; memory %.1f GB/s, arithmetic %.0f Gop/s\n\n%s",
                engine.value()->model_info().name.c_str(), config.num_threads, cpu_name().c_str(),
                speed.bytes_per_second / 1e9, speed.operations_per_second / 1e9,
                bench_to_table(*results).c_str());
  }
  if (!options.json_file.empty()) {
    Status written = write_file(options.json_file, json);
    if (!written.ok()) return report_failure(written.error());
  }
  return kExitOk;
}

}  // namespace

void add_bench_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "Measure prefill and decode speed");
  command->footer(
      "Examples:\n"
      "  intentkv bench -m model.gguf\n"
      "  intentkv bench -m model.gguf -p 512 -n 64 -d 0,7168 -t 2 -r 5 --json\n"
      "pp512@7168: evaluating 512 prompt tokens after 7,168 cached ones; tg64@7168: generating "
      "64.");
  auto sizes = [&](const char* name, std::vector<int>& values, const char* help) {
    command->add_option(name, values, help)
        ->delimiter(',')
        ->allow_extra_args(false)
        ->check(integer_between(0, 1 << 24))
        ->type_name("N,...")
        ->capture_default_str();
  };
  sizes("-p,--n-prompt", options->prompt_sizes, "Prompt sizes; 0: none");
  sizes("-n,--n-gen", options->generation_sizes, "Tokens to generate; 0: none");
  sizes("-d,--n-depth", options->depths, "Tokens in the cache before");
  command->add_option("-r,--repetitions", options->repetitions, "Counted runs of each test")
      ->check(integer_between(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print JSON instead of the table");
  command->add_option("--json-file", options->json_file, "Write the JSON to a file as well")
      ->type_name("FILE");
  add_engine_options(*command, options->engine);
  command->callback([options, &exit_code] { exit_code = run_bench(*options); });
}

}  // namespace ikv
