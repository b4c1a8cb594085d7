// Key codebooks of a model: from the cache folder, or fitted on the text that the project ships.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kv/key_codes.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace ikv {

/// What calibration is doing.
enum class CalibrationStage : uint8_t {
  kRunModel,  ///< the model reads the text; counted in tokens
  kFit,       ///< codebooks are fitted; counted in heads
};

/// progress(stage, done, all); called one at a time, from any thread.
using CalibrationProgress = std::function<void(CalibrationStage, size_t, size_t)>;

/// How codebooks are fitted and where they are kept.
struct CalibrationOptions {
  KeyCodeKind kind = KeyCodeKind::kProduct;
  /// Most tokens of the text that the model reads, evenly taken from all of it; at least 16.
  int text_tokens = 2048;
  int chunk_tokens = 256;  ///< of one run, each a sequence of its own; at most the model's context
  int rotations = 4;       ///< random positions that each key is rotated to
  size_t max_samples = 2048;  ///< keys that one head is fitted on
  uint64_t seed = 1;
  /// Empty: default_codebook_path() of the model's fingerprint.
  std::filesystem::path path;
  bool force = false;  ///< fit even if a valid file is there
  CalibrationProgress progress;
};

/// Codebooks and how they were come by.
struct Calibration {
  KeyCodebooks books;
  bool fitted = false;           ///< false: they were read from `path`
  bool saved = false;            ///< fitted and written to `path`
  std::filesystem::path path;    ///< empty: there is no cache folder
  std::string not_saved_reason;  ///< why a fit was not written
  std::string refit_reason;      ///< why the file that was there was not used
  size_t num_text_tokens = 0;
  size_t num_samples = 0;  ///< keys a head was fitted on
  double run_seconds = 0;
  double fit_seconds = 0;
};

/// The shape of a model's cache, as codebooks and pools want it.
std::vector<KvLayerShape> kv_layer_shapes(const Model& model);

/// The calibration text: English prose, dialogue, tool calls with JSON, code, tables, Chinese.
/// Written for this project and shipped inside the binary.
std::string_view calibration_text();

/// Runs the model over the text and fits. Errors: kInvalidArgument (options out of range, a text
/// that gives too few tokens), kUnsupported (head size), those of Model::forward(). The result
/// depends on model and options, not on the number of threads as long as forward() does not.
Result<Calibration> fit_calibration(const Model& model, const Tokenizer& tokenizer,
                                    const CalibrationOptions& options, ThreadPool& threads);

/// Reads the codebooks of the model with this `fingerprint` (see model_fingerprint()); where they
/// are missing, damaged, of another model or version, fits them and writes them. A file that cannot
/// be written costs a warning in the log, no more. Errors: those of fit_calibration(), a
/// `fingerprint` that cannot be a file's name. Loading takes a millisecond, fitting a few seconds
/// for a model of 135M parameters.
Result<Calibration> load_or_fit_codebooks(const Model& model, const Tokenizer& tokenizer,
                                          std::string_view fingerprint,
                                          const CalibrationOptions& options, ThreadPool& threads);

}  // namespace ikv
