#include "eval_report.h"

#include <algorithm>
#include <cstdio>

namespace ikv {
namespace {

using Json = nlohmann::ordered_json;

// One value of each record, grouped by session.
template <typename Get>
std::vector<std::vector<double>> by_session(const EvalOutcome& outcome, Get get) {
  std::vector<std::vector<double>> clusters(outcome.costs.size());
  for (const EvalRecord& record : outcome.records) {
    clusters[static_cast<size_t>(record.session)].push_back(get(record));
  }
  return clusters;
}

std::vector<double> flatten(const std::vector<std::vector<double>>& clusters) {
  std::vector<double> all;
  for (const auto& cluster : clusters) all.insert(all.end(), cluster.begin(), cluster.end());
  return all;
}

void add_cost(const EvalOutcome& outcome, Json& json) {
  ReplayCost sum;
  size_t peak = 0;
  size_t f16 = 0;
  double share_sum = 0;
  int64_t prefill_us = 0;
  for (size_t i = 0; i < outcome.costs.size(); ++i) {
    const ReplayCost& cost = outcome.costs[i];
    sum.decoded_tokens += cost.decoded_tokens;
    sum.decode_us += cost.decode_us;
    sum.evaluated_tokens += cost.evaluated_tokens;
    sum.attend += cost.attend;
    sum.resident.demoted_pages += cost.resident.demoted_pages;
    sum.similarity_sum += cost.similarity_sum;
    sum.num_similarities += cost.num_similarities;
    prefill_us += cost.prefill_us;
    if (cost.peak_kv_bytes > peak) {
      peak = cost.peak_kv_bytes;
      f16 = outcome.f16_kv_bytes[i];
    }
    share_sum += static_cast<double>(cost.peak_kv_bytes) /
                 static_cast<double>(std::max<size_t>(1, outcome.f16_kv_bytes[i]));
  }
  const double sessions = static_cast<double>(std::max<size_t>(1, outcome.costs.size()));
  const double decoded = static_cast<double>(std::max<uint64_t>(1, sum.decoded_tokens));
  const double cached = static_cast<double>(std::max<uint64_t>(1, sum.attend.cached));
  json["peak_kv_bytes"] = peak;
  json["f16_kv_bytes"] = f16;
  json["peak_kv_share_of_f16"] = share_sum / sessions;
  json["kv_bytes_read_per_token"] = static_cast<double>(sum.attend.bytes_read) / decoded;
  json["attended_share"] =
      sum.attend.selections > 0 ? static_cast<double>(sum.attend.attended) / cached : 1.0;
  json["ranked_share"] =
      sum.attend.selections > 0 ? static_cast<double>(sum.attend.ranked) / cached : 0.0;
  json["demoted_pages"] = sum.resident.demoted_pages;
  if (sum.num_similarities > 0) {
    json["intent_similarity"] = sum.similarity_sum / static_cast<double>(sum.num_similarities);
  }
  json["decode_ms_per_token"] = static_cast<double>(sum.decode_us) / 1e3 / decoded;
  json["prefill_seconds"] = static_cast<double>(prefill_us) / 1e6;
  json["evaluated_tokens"] = sum.evaluated_tokens + sum.decoded_tokens;
}

}  // namespace

Json summarise(const EvalVariant& variant, const EvalOutcome& outcome) {
  const auto kl = by_session(outcome, [](const EvalRecord& r) { return r.difference.kl; });
  const auto dnll = by_session(outcome, [](const EvalRecord& r) { return r.difference.dnll; });
  const auto top1 =
      by_session(outcome, [](const EvalRecord& r) { return r.difference.top1 ? 1.0 : 0.0; });
  const Distribution kl_all = describe(flatten(kl));
  const Distribution dnll_all = describe(flatten(dnll));
  const Interval kl_interval = bootstrap_mean(kl);
  const Interval dnll_interval = bootstrap_mean(dnll);
  const auto used = std::count_if(kl.begin(), kl.end(), [](const auto& c) { return !c.empty(); });
  Json json;
  json["name"] = variant.name;
  json["cache_type_k"] = kv_format_name(variant.config.formats.k);
  json["cache_type_v"] = kv_format_name(variant.config.formats.v);
  json["kv_attend"] = to_string(variant.config.policy.attend.budget);
  json["kv_resident"] = to_string(variant.config.policy.resident);
  json["scorer"] = token_scorer_name(variant.config.policy.attend.scorer);
  json["page_scorer"] = page_scorer_name(variant.config.policy.pages);
  json["intent"] = intent_choice_name(variant.config.policy.pages.intent);
  json["mean_kl"] = kl_all.mean;
  json["mean_kl_95"] = {kl_interval.low, kl_interval.high};
  json["median_kl"] = kl_all.median;
  json["p95_kl"] = kl_all.p95;
  json["p99_kl"] = kl_all.p99;
  json["max_kl"] = kl_all.max;
  json["mean_dnll"] = dnll_all.mean;
  json["mean_dnll_95"] = {dnll_interval.low, dnll_interval.high};
  json["top1"] = describe(flatten(top1)).mean;
  json["tokens"] = outcome.records.size();
  json["turns"] = outcome.num_turns;
  json["sessions"] = used;
  add_cost(outcome, json);
  return json;
}

std::string records_to_jsonl(const EvalVariant& variant, const EvalOutcome& outcome,
                             const std::vector<EvalSession>& sessions) {
  std::string text;
  for (const EvalRecord& r : outcome.records) {
    Json json;
    json["variant"] = variant.name;
    json["session"] = sessions[static_cast<size_t>(r.session)].id;
    json["message"] = r.message;
    json["position"] = r.position;
    json["token"] = r.token;
    json["kl"] = r.difference.kl;
    json["nll_full"] = r.difference.nll_full;
    json["dnll"] = r.difference.dnll;
    json["top1"] = r.difference.top1;
    text += json.dump() + "\n";
  }
  return text;
}

std::string summaries_to_table(const std::vector<Json>& summaries) {
  std::string text =
      "variant                  mean KL [95 %]               p99 KL    dNLL [95 %]                "
      "top-1   attended  KV/f16  ms/token\n";
  for (const Json& s : summaries) {
    char line[320];
    std::snprintf(line, sizeof line,
                  "%-24s %.5f [%.5f, %.5f]  %.4f  %+.5f [%+.5f, %+.5f]  %.4f  %5.1f %%  %5.1f %%  "
                  "%.2f\n",
                  s["name"].get<std::string>().substr(0, 24).c_str(), s["mean_kl"].get<double>(),
                  s["mean_kl_95"][0].get<double>(), s["mean_kl_95"][1].get<double>(),
                  s["p99_kl"].get<double>(), s["mean_dnll"].get<double>(),
                  s["mean_dnll_95"][0].get<double>(), s["mean_dnll_95"][1].get<double>(),
                  s["top1"].get<double>(), s["attended_share"].get<double>() * 100,
                  s["peak_kv_share_of_f16"].get<double>() * 100,
                  s["decode_ms_per_token"].get<double>());
    text += line;
  }
  return text;
}

}  // namespace ikv
