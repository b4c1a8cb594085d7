#include "cmd_demo.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli_error.h"
#include "demo_engine.h"
#include "demo_replay.h"
#include "engine_options.h"
#include "explain_words.h"
#include "flag_checks.h"
#include "kv_policy_options.h"

namespace ikv {
namespace {

// Replies after fewer tokens are not compared: short histories are not pruned.
constexpr int kMinHistoryTokens = 1024;
constexpr size_t kNumWords = 24;
constexpr size_t kShownBytes = 110;

struct DemoOptions {
  EngineOptions engine;
  std::string messages_file;
  int max_tokens = 48;
};

void say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

std::string cut(std::string text) {
  text = one_line(text);
  if (text.size() <= kShownBytes) return text;
  size_t end = kShownBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + " … (" + std::to_string(text.size()) + " bytes)";
}

void print_session(const Conversation& session) {
  for (size_t i = 0; i < session.messages.size(); ++i) {
    const Message& message = session.messages[i];
    std::string text = cut(message.content.value_or(""));
    for (const ToolCall& call : message.tool_calls) text += "calls " + cut(call.name);
    std::printf("%3zu %-9s %s\n", i, std::string(role_name(message.role)).c_str(), text.c_str());
  }
}

double mebibytes(size_t bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024.0);
}

double ms_per_token(int64_t us, int64_t tokens) {
  return tokens > 0 ? static_cast<double>(us) / 1e3 / static_cast<double>(tokens) : 0.0;
}

double mean_nll(const std::vector<TokenDifference>& reply, bool pruned) {
  double sum = 0;
  for (const TokenDifference& d : reply) sum += d.nll_full + (pruned ? d.dnll : 0.0);
  return reply.empty() ? 0.0 : sum / static_cast<double>(reply.size());
}

void print_table(const DemoRun& full, const DemoRun& pruned, const DemoComparison& c) {
  const AttendStats& attend = c.pruned.attend;
  const double share =
      attend.cached > 0 ? static_cast<double>(attend.attended) / static_cast<double>(attend.cached)
                        : 1.0;
  std::printf("%-46s %12s %12s\n", "", "full cache", "IntentKV");
  std::printf("%-46s %12.1f %12.1f\n", "peak of keys, values and codes, MiB",
              mebibytes(c.full.peak_kv_bytes), mebibytes(c.pruned.peak_kv_bytes));
  std::printf("%-46s %12lld %12lld\n", "prompt tokens sent",
              static_cast<long long>(full.sent_tokens), static_cast<long long>(pruned.sent_tokens));
  std::printf("%-46s %12lld %12lld\n", "prompt tokens evaluated",
              static_cast<long long>(full.evaluated_tokens),
              static_cast<long long>(pruned.evaluated_tokens));
  std::printf("%-46s %12.1f %12.1f\n", "ms per token of the recorded replies",
              ms_per_token(c.full_decode_us, c.decoded_tokens),
              ms_per_token(c.pruned_decode_us, c.decoded_tokens));
  std::printf("%-46s %11.1f%% %11.1f%%\n", "cache that a step reads", 100.0, 100 * share);
  std::printf("%-46s %12.3f %12.3f\n", "recorded last answer, nats per token",
              mean_nll(c.last_reply, false), mean_nll(c.last_reply, true));
}

void print_agreement(const char* what, const std::vector<TokenDifference>& differences) {
  std::vector<double> kl;
  size_t same = 0;
  for (const TokenDifference& d : differences) {
    kl.push_back(d.kl);
    if (d.top1) ++same;
  }
  const Distribution all = describe(std::move(kl));
  std::printf("%s, %zu tokens: KL %.4f mean, %.4f median, %.3f worst; same first choice %.1f %%\n",
              what, differences.size(), all.mean, all.median, all.max,
              100.0 * static_cast<double>(same) /
                  static_cast<double>(std::max<size_t>(1, differences.size())));
}

// The words that were read most, by the message in which they stand.
void print_words(const AuditRecord& last_turn, const Conversation& session) {
  std::map<int32_t, std::vector<ReadWord>> by_message;
  for (ReadWord& word : most_read_words(last_turn, kNumWords)) {
    by_message[word.message].push_back(std::move(word));
  }
  for (const auto& [message, words] : by_message) {
    std::string line;
    for (const ReadWord& word : words) {
      char share[16];
      std::snprintf(share, sizeof share, " %.0f%%", 100 * word.share);
      line += (line.empty() ? "" : ", ") + one_line(word.text) + share;
    }
    const auto index = static_cast<size_t>(message);
    std::string name(role_name(words.front().role));
    if (index < session.messages.size() && !session.messages[index].name.empty()) {
      name += " " + one_line(session.messages[index].name);
    }
    std::printf("%3d %s: %s\n", message, name.c_str(), line.c_str());
  }
}

// The policy that the engine ran with, for the replay.
Result<KvPolicy> policy_of(const TurnAudit& audit, int min_tokens) {
  KvPolicyOptions options;
  options.attend = audit.attend_budget;
  options.attend_min = min_tokens;
  options.resident = audit.resident_budget;
  return options.resolve();
}

Status run(const DemoOptions& options) {
  IKV_ASSIGN_OR_RETURN(const Conversation recorded, load_conversation(options.messages_file));
  if (recorded.messages.empty() || recorded.messages.back().role != Role::kAssistant) {
    return invalid_argument(options.messages_file + ": the last message must be a recorded reply");
  }
  Conversation asked = recorded;
  asked.messages.pop_back();
  print_session(asked);
  EngineConfig config = options.engine.resolve();
  say("\n== the session's turns on the full cache, then on IntentKV; the model answers the last");
  config.kv_policy = "off";
  IKV_ASSIGN_OR_RETURN(const DemoRun full, play_session(config, asked, options.max_tokens));
  config.kv_policy = "intent";
  IKV_ASSIGN_OR_RETURN(const DemoRun pruned, play_session(config, asked, options.max_tokens));
  say("full cache: " + cut(full.answer));
  say("IntentKV:   " + cut(pruned.answer));
  say("recorded:   " + cut(recorded.messages.back().content.value_or("")));
  say("\n== the recorded replies through both caches, token by token");
  IKV_ASSIGN_OR_RETURN(const KvPolicy policy,
                       policy_of(*pruned.audit, config.kv_attend_min_tokens));
  IKV_ASSIGN_OR_RETURN(
      const DemoComparison comparison,
      compare_caches(config.model_path, recorded, policy, config.num_threads, kMinHistoryTokens));
  std::printf("%d tokens in %zu messages, %d turns\n", comparison.session_tokens,
              recorded.messages.size(), full.num_turns);
  print_table(full, pruned, comparison);
  print_agreement("next-token distributions against the full cache", comparison.differences);
  print_agreement("the same within the last answer", comparison.last_reply);
  say("\n== what IntentKV read of the earlier turns for the recorded last answer");
  say("(share of steps, layers and heads; without the first 32 and last 128 tokens, which are "
      "always read)");
  print_words(comparison.last_turn, recorded);
  return {};
}

}  // namespace

void add_demo_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* command = app.add_subcommand(
      "demo", "Play a recorded session on the full cache and on IntentKV, and compare");
  command->footer(
      "Example:\n"
      "  intentkv demo -m model.gguf --messages demo/trip.json");
  command
      ->add_option("--messages", options->messages_file,
                   "The session (JSON: messages, tools); it ends with a recorded reply")
      ->required()
      ->type_name("FILE");
  command->add_option("-n,--n-predict", options->max_tokens, "Most tokens of the model's answers")
      ->check(integer_between(2, 1 << 16))
      ->capture_default_str();
  add_engine_options(*command, options->engine);
  command->callback([options, &exit_code] {
    const Status status = run(*options);
    exit_code = status.ok() ? kExitOk : report_failure(status.error());
  });
}

}  // namespace ikv
