// Engine::create: from a configuration to loaded parts.
#include "intentkv/engine.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "base/log.h"
#include "calibration/calibrate.h"
#include "calibration/model_fingerprint.h"
#include "engine/engine_impl.h"
#include "engine/pool_setup.h"
#include "gguf/reader.h"
#include "text/tokenizer_gguf.h"

namespace ikv {
namespace {

constexpr int kMaxThreads = 256;
constexpr const char* kDefaultAttend = "12.5%";
constexpr const char* kDefaultResident = "25%";
constexpr int kMaxParallel = 1024;
constexpr int kMaxChunkTokens = 1 << 16;

uint64_t available_memory_bytes() {
  const long pages = sysconf(_SC_AVPHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return uint64_t{1} << 30;
  return static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
}

Status check_range(const char* name, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(std::string(name) + " must be between " + std::to_string(low) + " and " +
                          std::to_string(high) + "; got " + std::to_string(value));
}

Result<KvFormat> parse_cache_type(const char* name, const std::string& text) {
  const auto format = parse_kv_format(text);
  if (format) return *format;
  return invalid_argument(std::string(name) + ": unknown format '" + text +
                          "'; supported: f32, f16, bf16, int8 (q8_0), int4 (q4_0)");
}

// Fills in what the caller left to us, and refuses what cannot be.
Status complete_config(EngineConfig& config) {
  if (config.num_threads == 0) {
    config.num_threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
    config.num_threads = std::min(config.num_threads, kMaxThreads);
  }
  if (config.kv_memory_bytes == 0) config.kv_memory_bytes = available_memory_bytes() / 4;
  IKV_RETURN_IF_ERROR(check_range("num_threads", config.num_threads, 1, kMaxThreads));
  IKV_RETURN_IF_ERROR(
      check_range("prefill_chunk_tokens", config.prefill_chunk_tokens, 1, kMaxChunkTokens));
  IKV_RETURN_IF_ERROR(check_range("max_parallel", config.max_parallel, 1, kMaxParallel));
  IKV_RETURN_IF_ERROR(check_range("max_queue", config.max_queue, 0, 1 << 20));
  IKV_RETURN_IF_ERROR(check_range("max_sessions", config.max_sessions, 1, 1 << 20));
  if (config.context_tokens < 0) {
    return invalid_argument("context_tokens must not be negative; got " +
                            std::to_string(config.context_tokens));
  }
  return {};
}

Status check_context(EngineConfig& config, const ModelConfig& model) {
  if (config.context_tokens == 0) config.context_tokens = model.context_tokens;
  if (config.context_tokens <= model.context_tokens) return {};
  return make_error(ErrorCode::kContextExceeded,
                    "a context of " + std::to_string(config.context_tokens) +
                        " tokens was asked for, but the model was trained for " +
                        std::to_string(model.context_tokens));
}

Result<KvPoolConfig> pool_config(const EngineConfig& config, const Model& model,
                                 const KvPolicy& policy, bool codes) {
  KvFormats formats;
  IKV_ASSIGN_OR_RETURN(formats.k, parse_cache_type("cache_type_k", config.cache_type_k));
  IKV_ASSIGN_OR_RETURN(formats.v, parse_cache_type("cache_type_v", config.cache_type_v));
  return make_pool_config(model, formats, config.block_tokens, codes, policy.demotes(),
                          policy.asks_digests());
}

// Scratch and pages share one cap. The pool names its own minimum; scratch is added to it here.
Status create_pool(EngineParts& parts) {
  const EngineConfig& config = parts.config;
  IKV_ASSIGN_OR_RETURN(KvPoolConfig pool,
                       pool_config(config, *parts.model, parts.policy, !parts.codebooks.empty()));
  parts.ledger = std::make_unique<MemoryLedger>(config.kv_memory_bytes);
  auto created = KvPool::create(std::move(pool), parts.ledger.get());
  if (!created.ok()) return created.error();
  parts.pool = std::move(created).value();
  const size_t scratch = StepRunner::scratch_bytes(
      *parts.model, *parts.pool, config.prefill_chunk_tokens + config.max_parallel,
      config.max_parallel, config.context_tokens, config.num_threads);
  const size_t minimum =
      parts.ledger->used_bytes() + scratch + parts.pool->bytes_needed(2 * config.block_tokens);
  if (minimum > config.kv_memory_bytes) {
    return make_error(ErrorCode::kOutOfMemory,
                      "KV memory of " + std::to_string(config.kv_memory_bytes) +
                          " bytes is less than the minimum of " + std::to_string(minimum) +
                          " bytes (" + std::to_string(scratch) +
                          " of it scratch for a step; a smaller prefill chunk or fewer parallel "
                          "requests need less)");
  }
  IKV_ASSIGN_OR_RETURN(parts.scratch_charge, parts.ledger->charge(MemoryUse::kScratch, scratch));
  return {};
}

Status load_text(const GgufFile& file, EngineParts& parts) {
  IKV_ASSIGN_OR_RETURN(parts.tokenizer, load_tokenizer(file));
  auto chat_template = load_chat_template(file, parts.tokenizer);
  if (chat_template.ok()) {
    parts.chat_template = std::move(chat_template).value();
  } else {
    parts.template_error = chat_template.error();
  }
  return {};
}

Result<KvPolicy> make_policy(const EngineConfig& config) {
  KvPolicy policy;
  if (config.kv_policy == "off") {
    if (config.kv_attend.empty() && config.kv_resident.empty()) return policy;
    return invalid_argument(
        "kv_attend and kv_resident are budgets of kv_policy \"intent\"; the policy is \"off\"");
  }
  if (config.kv_policy != "intent") {
    return invalid_argument("unknown kv_policy '" + config.kv_policy + "'; supported: off, intent");
  }
  AttendBudget defaults;
  defaults.min_tokens = config.kv_attend_min_tokens;
  IKV_ASSIGN_OR_RETURN(
      policy.attend.budget,
      parse_attend_budget(config.kv_attend.empty() ? kDefaultAttend : config.kv_attend, defaults));
  IKV_RETURN_IF_ERROR(check_attend_budget(policy.attend.budget));
  IKV_ASSIGN_OR_RETURN(
      policy.resident,
      parse_resident_budget(config.kv_resident.empty() ? kDefaultResident : config.kv_resident));
  IKV_RETURN_IF_ERROR(parse_page_scorer(config.kv_page_scorer, policy.pages));
  IKV_ASSIGN_OR_RETURN(policy.pages.intent, parse_intent_choice(config.kv_intent));
  return policy;
}

// Fitting takes seconds, once per model: the user shall know why nothing happens.
CalibrationOptions calibration_options(const EngineConfig& config) {
  CalibrationOptions options;
  if (!config.on_progress) return options;
  options.progress = [&config](CalibrationStage stage, size_t done, size_t all) {
    config.on_progress(stage == CalibrationStage::kRunModel
                           ? "calibration (once per model file): reading the text"
                           : "calibration (once per model file): fitting key codes",
                       done, all);
  };
  return options;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config) {
  EngineParts parts;
  parts.config = config;
  IKV_RETURN_IF_ERROR(complete_config(parts.config));
  IKV_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(config.model_path));
  parts.threads = std::make_unique<ThreadPool>(parts.config.num_threads);
  IKV_RETURN_IF_ERROR(load_text(file, parts));
  // Before loading gives the weights' pages back.
  const std::string fingerprint = model_fingerprint(file);
  IKV_ASSIGN_OR_RETURN(parts.model, Model::load(file, {}, *parts.threads));
  parts.model_name = parts.model->config().name;
  IKV_RETURN_IF_ERROR(check_context(parts.config, parts.model->config()));
  IKV_ASSIGN_OR_RETURN(parts.policy, make_policy(config));
  if (parts.policy.asks_codes()) {
    IKV_ASSIGN_OR_RETURN(Calibration calibration,
                         load_or_fit_codebooks(*parts.model, *parts.tokenizer, fingerprint,
                                               calibration_options(config), *parts.threads));
    parts.codebooks = std::move(calibration.books);
  }
  IKV_RETURN_IF_ERROR(create_pool(parts));
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(std::move(parts)));
}

}  // namespace ikv
