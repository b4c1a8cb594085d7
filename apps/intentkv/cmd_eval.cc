#include "cmd_eval.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "calibration/calibrate.h"
#include "calibration/model_fingerprint.h"
#include "cli_error.h"
#include "eval_data.h"
#include "eval_hits.h"
#include "eval_needles.h"
#include "eval_replay.h"
#include "eval_report.h"
#include "file_io.h"
#include "flag_checks.h"
#include "gguf/reader.h"
#include "kv_policy_options.h"
#include "text/tokenizer_gguf.h"

namespace ikv {
namespace {

using Json = nlohmann::ordered_json;

struct EvalOptions {
  std::string model_path;
  std::vector<std::string> data_paths;
  std::vector<std::string> ids;
  std::string variants_path;
  std::string json_path;
  std::string cache_type_k = "int8";
  std::string cache_type_v = "int8";
  std::string reference_type;
  KvPolicyOptions policy;
  int num_threads = 0;
  int max_tokens = 8000;
  int min_history = 1024;
  int max_sessions = 0;
  int block_tokens = 32;
  std::string code_kind = "product";
  bool hit_rate = false;
  bool needles = false;
};

Result<KvFormats> formats_of(const std::string& k, const std::string& v) {
  const auto key = parse_kv_format(k);
  const auto value = parse_kv_format(v);
  if (!key || !value) {
    return invalid_argument("unknown cache type '" + (key ? v : k) +
                            "'; supported: f32, f16, bf16, int8, int4");
  }
  return KvFormats{*key, *value};
}

// A variant of the file: the flags' names without dashes, what is missing as on the command line.
Result<EvalVariant> parse_variant(const Json& json, const EvalOptions& options) {
  KvPolicyOptions policy = options.policy;
  EvalVariant variant;
  try {
    variant.name = json.value("name", std::string("variant"));
    policy.attend = json.value("kv_attend", policy.attend);
    policy.attend_min = json.value("kv_attend_min", policy.attend_min);
    policy.resident = json.value("kv_resident", policy.resident);
    policy.scorer = json.value("kv_scorer", policy.scorer);
    policy.page_scorer = json.value("kv_page_scorer", policy.page_scorer);
    policy.intent = json.value("kv_intent", policy.intent);
    policy.candidates = json.value("kv_candidates", policy.candidates);
    policy.force_selection = json.value("kv_force_selection", policy.force_selection);
    IKV_ASSIGN_OR_RETURN(variant.config.formats,
                         formats_of(json.value("cache_type_k", options.cache_type_k),
                                    json.value("cache_type_v", options.cache_type_v)));
    variant.config.block_tokens = json.value("block_tokens", options.block_tokens);
  } catch (const Json::exception& e) {
    return invalid_argument(std::string("a variant has a field of the wrong type: ") + e.what());
  }
  IKV_ASSIGN_OR_RETURN(variant.config.policy, policy.resolve());
  return variant;
}

Result<std::vector<EvalVariant>> make_variants(const EvalOptions& options) {
  std::vector<EvalVariant> variants;
  if (options.variants_path.empty()) {
    IKV_ASSIGN_OR_RETURN(EvalVariant variant, parse_variant(Json::object(), options));
    variant.name = "candidate";
    variants.push_back(std::move(variant));
    return variants;
  }
  IKV_ASSIGN_OR_RETURN(const std::string text, read_file(options.variants_path));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array() || json.empty()) {
    return invalid_argument("'" + options.variants_path + "' must hold a JSON array of variants");
  }
  for (const Json& entry : json) {
    IKV_ASSIGN_OR_RETURN(EvalVariant variant, parse_variant(entry, options));
    variants.push_back(std::move(variant));
  }
  return variants;
}

Result<std::vector<EvalSession>> load_sessions(const EvalOptions& options,
                                               const ChatTemplate& chat_template,
                                               const Tokenizer& tokenizer) {
  const std::set<std::string> wanted(options.ids.begin(), options.ids.end());
  std::vector<EvalSession> sessions;
  for (const std::string& path : options.data_paths) {
    IKV_ASSIGN_OR_RETURN(const auto conversations, read_conversations(path));
    for (const EvalConversation& conversation : conversations) {
      if (!wanted.empty() && !wanted.contains(conversation.id)) continue;
      auto session = make_eval_session(conversation, chat_template, options.max_tokens);
      if (!session.ok()) {
        return make_error(session.error().code,
                          "'" + path + "', " + conversation.id + ": " + session.error().message);
      }
      if (options.needles) {
        IKV_RETURN_IF_ERROR(add_needles(conversation, chat_template, tokenizer, *session));
        if (session->needles.empty()) continue;
      }
      const bool counts =
          std::any_of(session->turns.begin(), session->turns.end(),
                      [&](const EvalTurn& turn) { return turn.begin >= options.min_history; });
      if (counts) sessions.push_back(std::move(session).value());
      if (options.max_sessions > 0 &&
          sessions.size() == static_cast<size_t>(options.max_sessions)) {
        return sessions;
      }
    }
  }
  if (sessions.empty()) {
    return invalid_argument("no session has a reply after " + std::to_string(options.min_history) +
                            " tokens of history");
  }
  return sessions;
}

class Progress {
 public:
  explicit Progress(std::vector<int32_t> tokens) : tokens_(std::move(tokens)) {
    for (const int32_t count : tokens_) all_ += count;
  }
  void show(size_t session, int32_t done) {
    int64_t before = done;
    for (size_t i = 0; i < session; ++i) before += tokens_[i];
    const auto percent = static_cast<int>(before * 100 / std::max<int64_t>(1, all_));
    if (percent == last_) return;
    last_ = percent;
    const bool terminal = isatty(2) != 0;
    if (!terminal && percent % 10 != 0) return;
    std::fprintf(stderr, "%seval: session %zu of %zu, %d %%%s", terminal ? "\r" : "", session + 1,
                 tokens_.size(), percent, terminal ? "" : "\n");
    if (terminal && percent >= 99) std::fprintf(stderr, "\n");
  }

 private:
  std::vector<int32_t> tokens_;
  int64_t all_ = 0;
  int last_ = -1;
};

Status write_results(const EvalOptions& options, const std::vector<EvalVariant>& variants,
                     const std::vector<EvalOutcome>& outcomes,
                     const std::vector<EvalSession>& sessions) {
  std::vector<Json> summaries;
  for (size_t i = 0; i < variants.size(); ++i) {
    summaries.push_back(summarise(variants[i], outcomes[i]));
  }
  std::printf("%s", summaries_to_table(summaries).c_str());
  if (options.json_path.empty()) return {};
  const Json whole = options.variants_path.empty() ? summaries.front() : Json(summaries);
  IKV_RETURN_IF_ERROR(write_file(options.json_path, whole.dump(2) + "\n"));
  std::string records;
  for (size_t i = 0; i < variants.size(); ++i) {
    records += records_to_jsonl(variants[i], outcomes[i], sessions);
  }
  return write_file(options.json_path + ".tokens.jsonl", records);
}

Status write_needles(const EvalOptions& options, const std::vector<EvalVariant>& variants,
                     const std::vector<NeedleOutcome>& outcomes,
                     const std::vector<EvalSession>& sessions) {
  std::vector<Json> summaries;
  for (size_t i = 0; i < variants.size(); ++i) {
    summaries.push_back(needles_to_json(variants[i], outcomes[i], sessions));
  }
  std::printf("%s", needles_to_table(summaries).c_str());
  if (options.json_path.empty()) return {};
  return write_file(options.json_path, Json(summaries).dump(2) + "\n");
}

Status run(const EvalOptions& options) {
  IKV_ASSIGN_OR_RETURN(const std::vector<EvalVariant> variants, make_variants(options));
  IKV_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::open(options.model_path));
  IKV_ASSIGN_OR_RETURN(const auto tokenizer, load_tokenizer(file));
  IKV_ASSIGN_OR_RETURN(const auto chat_template, load_chat_template(file, tokenizer));
  IKV_ASSIGN_OR_RETURN(const auto sessions, load_sessions(options, *chat_template, *tokenizer));
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  ThreadPool threads(options.num_threads > 0 ? options.num_threads : std::max(1, cores));
  const std::string fingerprint = model_fingerprint(file);
  IKV_ASSIGN_OR_RETURN(const auto model, Model::load(file, {}, threads));
  CalibrationOptions calibration_options;
  if (options.code_kind == "sign") calibration_options.kind = KeyCodeKind::kSign;
  IKV_ASSIGN_OR_RETURN(
      const Calibration calibration,
      load_or_fit_codebooks(*model, *tokenizer, fingerprint, calibration_options, threads));
  ReplayConfig reference;
  const std::string& type = options.reference_type;
  IKV_ASSIGN_OR_RETURN(reference.formats, formats_of(type.empty() ? options.cache_type_k : type,
                                                     type.empty() ? options.cache_type_v : type));
  std::vector<int32_t> tokens;
  tokens.reserve(sessions.size());
  for (const EvalSession& session : sessions) {
    tokens.push_back(static_cast<int32_t>(session.tokens.size()));
  }
  Progress progress(std::move(tokens));
  if (options.hit_rate) {
    HitOptions hit_options;
    hit_options.min_history = options.min_history;
    IKV_ASSIGN_OR_RETURN(
        const auto hits,
        run_hit_rate(*model, &calibration.books, threads, reference, sessions, hit_options,
                     [&](size_t session, int32_t done) { progress.show(session, done); }));
    const Json json = hits_to_json(hits, hit_options);
    std::printf("%s", hits_to_table(json).c_str());
    if (options.json_path.empty()) return {};
    return write_file(options.json_path, json.dump(2) + "\n");
  }
  if (options.needles) {
    IKV_ASSIGN_OR_RETURN(
        const auto outcomes,
        run_needles(*model, &calibration.books, threads, reference, variants, sessions,
                    options.min_history,
                    [&](size_t session, int32_t done, int32_t) { progress.show(session, done); }));
    return write_needles(options, variants, outcomes, sessions);
  }
  IKV_ASSIGN_OR_RETURN(const auto outcomes,
                       run_eval(*model, &calibration.books, threads, reference, variants, sessions,
                                options.min_history, [&](size_t session, int32_t done, int32_t) {
                                  progress.show(session, done);
                                }));
  return write_results(options, variants, outcomes, sessions);
}

void add_data_flags(CLI::App& command, EvalOptions& options) {
  command.add_option("-m,--model", options.model_path, "GGUF file")->required()->type_name("FILE");
  command.add_option("--data", options.data_paths, "Recorded conversations; may be repeated")
      ->required()
      ->allow_extra_args(false)
      ->type_name("FILE.jsonl");
  command.add_option("--id", options.ids, "Only this conversation; may be repeated")
      ->allow_extra_args(false)
      ->type_name("ID");
  command
      .add_option("--max-tokens", options.max_tokens,
                  "Sessions are cut at the last whole turn within so many tokens")
      ->check(integer_between(2, 1 << 24))
      ->capture_default_str();
  command
      .add_option("--min-history", options.min_history, "Replies with less before are not scored")
      ->check(integer_between(1, 1 << 24))
      ->capture_default_str();
  command.add_option("--max-sessions", options.max_sessions, "Stop after so many; 0: all")
      ->check(integer_between(0, 1 << 20))
      ->capture_default_str();
  command.add_option("-t,--threads", options.num_threads, "Threads that compute; 0: all cores")
      ->check(integer_between(0, 256));
}

void add_setting_flags(CLI::App& command, EvalOptions& options) {
  command.add_option("--cache-type-k", options.cache_type_k, "Format of cached keys");
  command.add_option("--cache-type-v", options.cache_type_v, "Format of cached values");
  command.add_option("--reference-type", options.reference_type,
                     "Cache format of the full-cache run; default: that of the flags above");
  command.add_option("--block-tokens", options.block_tokens, "Tokens of a block")
      ->check(integer_between(16, 128));
  command.add_option("--key-codes", options.code_kind, "Kind of key codes")
      ->check(CLI::IsMember({"product", "sign"}))
      ->capture_default_str();
  command
      .add_option(
          "--variants", options.variants_path,
          "JSON array of {name, kv_attend, kv_resident, cache_type_k, ...}: all of them are "
          "compared with one full-cache run")
      ->type_name("FILE.json");
  command
      .add_option("--json", options.json_path,
                  "Write the summary there, and each token's figures beside it (.tokens.jsonl)")
      ->type_name("FILE");
  command.add_flag("--hit-rate", options.hit_rate,
                   "Instead: how much of what replies attend to each page policy would have kept "
                   "hot, of 25 % and of 50 % of the pages");
  command.add_flag("--needles", options.needles,
                   "Instead: ask the recorded questions at their places and compare how likely "
                   "their answers are");
  add_kv_policy_options(command, options.policy);
}

}  // namespace

void add_eval_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand(
      "eval", "Replay recorded conversations on the full cache and on a pruned one, and compare");
  command->footer(
      "Example:\n"
      "  intentkv eval -m model.gguf --data sessions.jsonl --kv-attend 12.5% --json out.json\n"
      "Replies are fed token by token through the decode path, on the cache that earlier pruned\n"
      "turns left; their next-token distributions are compared with the full cache's.");
  add_data_flags(*command, *options);
  add_setting_flags(*command, *options);
  command->callback([options, &exit_code] {
    const Status status = run(*options);
    exit_code = status.ok() ? kExitOk : report_failure(status.error());
  });
}

}  // namespace ikv
