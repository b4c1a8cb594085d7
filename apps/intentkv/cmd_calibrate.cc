#include "cmd_calibrate.h"

#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "base/log.h"
#include "calibration/calibrate.h"
#include "calibration/model_fingerprint.h"
#include "cli_error.h"
#include "flag_checks.h"
#include "gguf/reader.h"
#include "model/model.h"
#include "text/tokenizer_gguf.h"

namespace ikv {
namespace {

struct CalibrateOptions {
  std::string model_path;
  std::string out_path;
  std::string kind = "product";
  int num_threads = 0;  // 0: all cores
  CalibrationOptions calibration;
};

// One line for each stage, rewritten on a terminal; elsewhere only the figures at the end.
class StageLine {
 public:
  void show(CalibrationStage stage, size_t done, size_t all) {
    if (!terminal_ || all == 0) return;
    const char* what = stage == CalibrationStage::kRunModel ? "reading the calibration text"
                                                            : "fitting codebooks          ";
    std::fprintf(stderr, "\r%s %3zu %%%s", what, done * 100 / all, done == all ? "\n" : "");
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
};

void print_figures(const Calibration& result) {
  size_t num_heads = 0;
  for (const KvLayerShape& layer : result.books.layers()) {
    num_heads += static_cast<size_t>(layer.num_kv_heads);
  }
  if (!result.refit_reason.empty()) std::printf("%s\n", one_line(result.refit_reason).c_str());
  if (!result.fitted) {
    std::printf("%s: already there and valid (%zu heads); --force fits again\n",
                result.path.c_str(), num_heads);
    return;
  }
  std::printf("%zu tokens of text, %zu sample keys for each of %zu heads\n", result.num_text_tokens,
              result.num_samples, num_heads);
  std::printf("%.1f s to read the text, %.1f s to fit\n", result.run_seconds, result.fit_seconds);
}

Status run(const CalibrateOptions& options) {
  IKV_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(options.model_path));
  const std::string fingerprint = model_fingerprint(file);
  ThreadPool threads(options.num_threads > 0
                         ? options.num_threads
                         : static_cast<int>(std::thread::hardware_concurrency()));
  IKV_ASSIGN_OR_RETURN(const auto tokenizer, load_tokenizer(file));
  IKV_ASSIGN_OR_RETURN(const auto model, Model::load(file, {}, threads));
  CalibrationOptions calibration = options.calibration;
  calibration.path = options.out_path;
  calibration.kind = options.kind == "sign" ? KeyCodeKind::kSign : KeyCodeKind::kProduct;
  StageLine line;
  calibration.progress = [&](CalibrationStage stage, size_t done, size_t all) {
    line.show(stage, done, all);
  };
  set_log_level(LogLevel::kError);  // what the library would warn of is this command's own output
  IKV_ASSIGN_OR_RETURN(
      const Calibration result,
      load_or_fit_codebooks(*model, *tokenizer, fingerprint, calibration, threads));
  print_figures(result);
  if (!result.fitted) return {};
  if (!result.saved) return make_error(ErrorCode::kIo, "not saved: " + result.not_saved_reason);
  std::printf("%s: written\n", result.path.c_str());
  return {};
}

}  // namespace

void add_calibrate_command(CLI::App& model, int& exit_code) {
  const auto options = std::make_shared<CalibrateOptions>();
  CLI::App* command = model.add_subcommand(
      "calibrate", "Fit the codebooks by which old keys are scored (else done at first use)");
  command->add_option("-m,--model", options->model_path, "GGUF file")
      ->required()
      ->type_name("FILE");
  command
      ->add_option("--kind", options->kind,
                   "product: 16 centroids per 4 channels; sign: one bit a channel")
      ->check(CLI::IsMember({"product", "sign"}))
      ->type_name("KIND")
      ->capture_default_str();
  command->add_flag("--force", options->calibration.force, "Fit even if a valid file is there");
  command
      ->add_option("--out", options->out_path, "Where to write; default: the user's cache folder")
      ->type_name("FILE");
  command
      ->add_option("--tokens", options->calibration.text_tokens,
                   "Most tokens of the calibration text to read")
      ->check(integer_between(64, 1 << 20))
      ->type_name("N")
      ->capture_default_str();
  command
      ->add_option("-t,--threads", options->num_threads, "Threads that compute; default: all cores")
      ->check(integer_between(1, 1024))
      ->type_name("N");
  command->footer("Example:\n  intentkv model calibrate -m models/smollm2-135m-instruct-q4_1.gguf");
  command->callback([options, &exit_code] {
    const Status status = run(*options);
    exit_code = status.ok() ? kExitOk : report_failure(status.error());
  });
}

}  // namespace ikv
