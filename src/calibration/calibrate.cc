#include "calibration/calibrate.h"

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "calibration/capture_attention.h"
#include "calibration/key_transform.h"
#include "kv/key_codebook_file.h"
#include "kv/key_codebook_fit.h"

namespace ikv {
namespace {

// Counts up whenever text or method change what is fitted, so that old files are not used.
constexpr std::string_view kRecipe = "-r2";

double seconds_since(int64_t begin_us) {
  return static_cast<double>(now_us() - begin_us) / 1e6;
}

Status check_options(const CalibrationOptions& options) {
  const auto at_least = [](const char* name, int64_t value, int64_t low) -> Status {
    if (value >= low) return {};
    return invalid_argument("calibration: " + std::string(name) + " is " + std::to_string(value) +
                            ", at least " + std::to_string(low) + " is needed");
  };
  IKV_RETURN_IF_ERROR(at_least("text_tokens", options.text_tokens, kKeyCentroids));
  IKV_RETURN_IF_ERROR(at_least("chunk_tokens", options.chunk_tokens, 1));
  IKV_RETURN_IF_ERROR(at_least("rotations", options.rotations, 1));
  return at_least("max_samples", static_cast<int64_t>(options.max_samples), kKeyCentroids);
}

// Chunks of the text. When not all of it may run, those that do are spread evenly over it, since
// each part of the text is of another kind.
std::vector<std::vector<TokenId>> split_text(const std::vector<TokenId>& tokens, size_t chunk,
                                             size_t limit) {
  const size_t num_used = std::min(limit, tokens.size());
  const size_t num_chunks = (num_used + chunk - 1) / chunk;
  std::vector<std::vector<TokenId>> chunks;
  for (size_t i = 0; i < num_chunks; ++i) {
    const size_t used_begin = i * chunk;
    const size_t count = std::min(chunk, num_used - used_begin);
    // Spreads the unused tokens between the chunks.
    const size_t gap = num_chunks > 1 ? (tokens.size() - num_used) * i / (num_chunks - 1) : 0;
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(used_begin + gap);
    chunks.emplace_back(begin, begin + static_cast<ptrdiff_t>(count));
  }
  return chunks;
}

Status run_text(const Model& model, const std::vector<std::vector<TokenId>>& chunks,
                const CalibrationProgress& progress, CaptureAttention& attention,
                ThreadPool& threads) {
  size_t num_all = 0;
  for (const auto& chunk : chunks) num_all += chunk.size();
  Workspace workspace(threads);
  size_t num_done = 0;
  if (progress) progress(CalibrationStage::kRunModel, 0, num_all);
  for (const auto& chunk : chunks) {
    attention.begin_chunk(chunk.size());
    IKV_RETURN_IF_ERROR(model.forward({chunk, {}}, attention, workspace, nullptr));
    num_done += chunk.size();
    if (progress) progress(CalibrationStage::kRunModel, num_done, num_all);
  }
  return {};
}

// Of every head, layer by layer. Sign codes have one bit a channel: nothing to deal out.
std::vector<KeyTransform> make_transforms(KeyCodeKind kind, const KeySampler& sampler,
                                          const CaptureAttention& attention) {
  std::vector<KeyTransform> transforms;
  if (kind == KeyCodeKind::kSign) return transforms;
  for (size_t l = 0; l < sampler.layers().size(); ++l) {
    const int layer = static_cast<int>(l);
    for (int head = 0; head < sampler.layers()[l].num_kv_heads; ++head) {
      const std::span<const double> queries = attention.query_energy(layer, head);
      std::vector<double> energy(queries.size(), 0.0);
      const std::vector<float>& keys = sampler.samples(layer, head);
      for (size_t i = 0; i < keys.size(); ++i) {
        energy[i % energy.size()] += static_cast<double>(keys[i]) * static_cast<double>(keys[i]);
      }
      transforms.push_back(make_key_transform(energy, queries));
    }
  }
  return transforms;
}

}  // namespace

std::vector<KvLayerShape> kv_layer_shapes(const Model& model) {
  std::vector<KvLayerShape> shapes;
  for (int layer = 0; layer < model.config().num_layers; ++layer) {
    const AttentionSpec& spec = model.attention_spec(layer);
    shapes.push_back({spec.num_kv_heads, spec.head_dim});
  }
  return shapes;
}

Result<Calibration> fit_calibration(const Model& model, const Tokenizer& tokenizer,
                                    const CalibrationOptions& options, ThreadPool& threads) {
  IKV_RETURN_IF_ERROR(check_options(options));
  const std::vector<KvLayerShape> shapes = kv_layer_shapes(model);
  // Refuses head sizes that codes do not have before the model runs for seconds.
  IKV_RETURN_IF_ERROR(KeyCodebooks::create(options.kind, shapes));
  IKV_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                       tokenizer.encode(calibration_text(), /*parse_special=*/false));
  const int context = std::max(model.config().context_tokens, 1);
  const auto chunks =
      split_text(tokens, static_cast<size_t>(std::min(options.chunk_tokens, context)),
                 static_cast<size_t>(options.text_tokens));

  Calibration result;
  result.fitted = true;
  for (const auto& chunk : chunks) result.num_text_tokens += chunk.size();
  KeySampler sampler(shapes, options.max_samples, options.seed);
  CaptureAttention attention(sampler, options.rotations, context, options.seed, threads);
  const int64_t begin_us = now_us();
  IKV_RETURN_IF_ERROR(run_text(model, chunks, options.progress, attention, threads));
  result.run_seconds = seconds_since(begin_us);

  const int64_t fit_begin_us = now_us();
  const auto fit_progress = [&](size_t done, size_t all) {
    if (options.progress) options.progress(CalibrationStage::kFit, done, all);
  };
  IKV_ASSIGN_OR_RETURN(result.books,
                       fit_codebooks(options.kind, sampler, options.seed, threads, fit_progress,
                                     make_transforms(options.kind, sampler, attention)));
  result.fit_seconds = seconds_since(fit_begin_us);
  result.num_samples = sampler.num_samples(0, 0);
  return result;
}

Result<Calibration> load_or_fit_codebooks(const Model& model, const Tokenizer& tokenizer,
                                          std::string_view fingerprint,
                                          const CalibrationOptions& options, ThreadPool& threads) {
  const std::string key = std::string(fingerprint) + std::string(kRecipe);
  std::filesystem::path path = options.path;
  std::string no_folder;
  if (path.empty()) {
    auto found = default_codebook_path(key, options.kind);
    if (found.ok()) {
      path = std::move(found).value();
    } else if (found.error().code == ErrorCode::kNotFound) {
      no_folder = found.error().message;
    } else {
      return found.error();
    }
  }
  std::string refit_reason;
  if (!path.empty() && !options.force) {
    auto loaded = load_codebooks(path, options.kind, kv_layer_shapes(model), key);
    if (loaded.ok()) {
      Calibration result;
      result.books = std::move(loaded).value();
      result.path = path;
      return result;
    }
    if (loaded.error().code != ErrorCode::kNotFound) refit_reason = loaded.error().message;
  }
  if (!refit_reason.empty()) log(LogLevel::kWarning, refit_reason);
  IKV_ASSIGN_OR_RETURN(Calibration result, fit_calibration(model, tokenizer, options, threads));
  result.refit_reason = refit_reason;
  result.path = path;
  const Status saved = path.empty() ? Status(make_error(ErrorCode::kNotFound, no_folder))
                                    : save_codebooks(path, result.books, key);
  result.saved = saved.ok();
  if (!saved.ok()) {
    result.not_saved_reason = saved.error().message;
    log(LogLevel::kWarning,
        "key codebooks are not kept and will be fitted again at the next start: " +
            result.not_saved_reason);
  }
  return result;
}

}  // namespace ikv
