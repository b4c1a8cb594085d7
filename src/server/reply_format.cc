#include "server/reply_format.h"

#include <algorithm>
#include <ctime>
#include <mutex>
#include <random>
#include <utility>

namespace ikv {
namespace {

Json divergence_json(const Divergence& divergence) {
  return {{"message", divergence.message},
          {"character", divergence.character},
          {"lost_tokens", divergence.lost_tokens},
          {"what", divergence.what}};
}

Json token_bytes_json(const std::string& bytes) {
  Json numbers = Json::array();
  for (const char c : bytes) numbers.push_back(static_cast<int>(static_cast<unsigned char>(c)));
  return numbers;
}

Json token_json(const TokenLogprob& token) {
  return {{"token", token.bytes},
          {"logprob", finite_logprob(token.logprob)},
          {"bytes", token_bytes_json(token.bytes)}};
}

}  // namespace

std::string make_id(std::string_view prefix) {
  static std::mutex mutex;
  static std::mt19937_64 random{std::random_device{}()};
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::string id(prefix);
  const std::lock_guard lock(mutex);
  for (int i = 0; i < 24; ++i) id += kLetters[random() % kLetters.size()];
  return id;
}

ReplyIdentity make_identity(std::string_view prefix, const std::string& model,
                            const WriteAudit& write_audit) {
  return {make_id(prefix), model, static_cast<int64_t>(std::time(nullptr)), write_audit};
}

void add_audit(Json& target, const ReplyIdentity& identity, const GenerationResult& result) {
  if (result.audit && identity.write_audit) target["audit"] = identity.write_audit(*result.audit);
}

std::string sse_data(const Json& json) {
  return "data: " + dump_json(json) + "\n\n";
}

std::string sse_event(std::string_view name, const Json& json) {
  return "event: " + std::string(name) + "\n" + sse_data(json);
}

Json policy_usage_json(const Usage& usage) {
  const KvUsage& kv = usage.kv;
  Json json = {
      {"evaluated", usage.evaluated_tokens},
      {"kept", kv.kept_tokens},
      {"pruned", kv.pruned_tokens},
      {"attended_share", kv.attended_share},
      {"demoted_pages", kv.demoted_pages},
      {"resident_bytes", kv.resident_bytes},
      {"missed_mass", kv.num_probes > 0 ? Json(kv.missed_mass) : Json(nullptr)},
      {"pinned_pages", kv.pinned_pages},
      {"intent_tokens", kv.intent_tokens},
      {"intent_similarity", kv.intent_similarity ? Json(*kv.intent_similarity) : Json(nullptr)},
      {"queue_ms", static_cast<double>(usage.queue_us) / 1000},
      {"prefill_ms", static_cast<double>(usage.prefill_us) / 1000},
      {"decode_ms", static_cast<double>(usage.decode_us) / 1000}};
  Json divergences = Json::array();
  for (const Divergence& divergence : usage.divergences) {
    divergences.push_back(divergence_json(divergence));
  }
  json["divergences"] = std::move(divergences);
  return json;
}

Json usage_json(const std::vector<GenerationResult>& results) {
  int64_t prompt = 0, completion = 0, cached = 0;
  for (const GenerationResult& result : results) {
    // Choices of one prompt: the client pays for it once, and only the first had to find a cache.
    prompt = std::max<int64_t>(prompt, result.usage.prompt_tokens);
    completion += result.usage.completion_tokens;
  }
  if (!results.empty()) cached = results.front().usage.cached_tokens;
  Json json = {{"prompt_tokens", prompt},
               {"completion_tokens", completion},
               {"total_tokens", prompt + completion},
               {"prompt_tokens_details", {{"cached_tokens", cached}}}};
  if (!results.empty()) json["intentkv"] = policy_usage_json(results.front().usage);
  return json;
}

double finite_logprob(float logprob) {
  constexpr double kImpossible = -9999.0;  // JSON has no infinity; OpenAI's value for it
  return logprob >= kImpossible ? static_cast<double>(logprob) : kImpossible;
}

Json chat_logprobs_json(const std::vector<SampledToken>& tokens) {
  Json content = Json::array();
  for (const SampledToken& token : tokens) {
    Json entry = token_json(token.chosen);
    Json others = Json::array();
    for (const TokenLogprob& other : token.alternatives) others.push_back(token_json(other));
    entry["top_logprobs"] = std::move(others);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json tool_call_json(const ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments_json}}}};
}

void name_tool_calls(std::vector<ToolCall>& calls) {
  for (ToolCall& call : calls) call.id = make_id("call_");
}

}  // namespace ikv
