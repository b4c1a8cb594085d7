#include "eval_hits.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <utility>

#include "eval_hit_meter.h"
#include "eval_metrics.h"
#include "intent/intent_memory.h"

namespace ikv {
namespace {

using Json = nlohmann::ordered_json;

Status run_session(ReplayLane& lane, HitMeter& meter, const EvalSession& session,
                   const HitOptions& options, const std::function<void(int32_t)>& progress,
                   std::vector<HitOutcome>& outcomes) {
  IKV_RETURN_IF_ERROR(lane.begin());
  meter.begin_session();
  for (HitOutcome& outcome : outcomes) outcome.turns.emplace_back();
  LogicalPos done = 0;
  for (const EvalTurn& turn : session.turns) {
    progress(done);
    const auto tokens =
        std::span<const TokenId>(session.tokens)
            .subspan(static_cast<size_t>(done), static_cast<size_t>(turn.begin - done));
    IKV_RETURN_IF_ERROR(lane.prefill(tokens, true, intent_phase(turn.asked_by, false)));
    IKV_RETURN_IF_ERROR(meter.begin_turn(turn.begin >= options.min_history));
    for (LogicalPos p = turn.begin; p + 1 < turn.end; ++p) {
      IKV_RETURN_IF_ERROR(lane.decode(session.tokens[static_cast<size_t>(p)]));
      if ((p - turn.begin) % options.step_stride == 0) meter.sample_step();
    }
    const auto hits = meter.end_turn();
    for (size_t i = 0; i < hits.size(); ++i) outcomes[i].turns.back().push_back(hits[i]);
    done = turn.end - 1;
  }
  return {};
}

template <typename Get>
std::vector<std::vector<double>> values_of(const HitOutcome& outcome, Get get) {
  std::vector<std::vector<double>> clusters;
  for (const auto& session : outcome.turns) {
    auto& cluster = clusters.emplace_back();
    for (const auto& turn : session) cluster.push_back(get(turn));
  }
  return clusters;
}

double mean_of(const std::vector<std::vector<double>>& clusters) {
  double sum = 0;
  double count = 0;
  for (const auto& cluster : clusters) {
    for (const double x : cluster) sum += x;
    count += static_cast<double>(cluster.size());
  }
  return count > 0 ? sum / count : 0.0;
}

Json budget_to_json(const HitOutcome& outcome, const HitOutcome& oracle, size_t budget) {
  const auto mass = [&](const auto& turn) { return turn[budget].mass; };
  const auto free_mass = [&](const auto& turn) { return turn[budget].free_mass; };
  const auto masses = values_of(outcome, mass);
  const Interval interval = bootstrap_mean(masses);
  Json json;
  json["hot_share"] = kHitBudgets[budget];
  json["tokens"] =
      mean_of(values_of(outcome, [&](const auto& turn) { return turn[budget].tokens; }));
  json["mass"] = mean_of(masses);
  json["mass_95"] = {interval.low, interval.high};
  json["mass_of_oracle"] = mean_of(masses) / std::max(1e-12, mean_of(values_of(oracle, mass)));
  json["free_tokens"] =
      mean_of(values_of(outcome, [&](const auto& turn) { return turn[budget].free_tokens; }));
  json["free_mass"] = mean_of(values_of(outcome, free_mass));
  json["free_mass_of_oracle"] = mean_of(values_of(outcome, free_mass)) /
                                std::max(1e-12, mean_of(values_of(oracle, free_mass)));
  return json;
}

}  // namespace

Result<std::vector<HitOutcome>> run_hit_rate(const Model& model, const KeyCodebooks* codebooks,
                                             ThreadPool& threads, const ReplayConfig& reference,
                                             const std::vector<EvalSession>& sessions,
                                             const HitOptions& options,
                                             const std::function<void(size_t, int32_t)>& progress) {
  size_t longest = 0;
  for (const EvalSession& session : sessions) longest = std::max(longest, session.tokens.size());
  ReplayConfig config = reference;
  config.policy = {};
  config.observe = true;
  IKV_ASSIGN_OR_RETURN(const auto lane, ReplayLane::create(model, codebooks, threads, config,
                                                           static_cast<int32_t>(longest)));
  HitMeter meter(model, codebooks, threads, *lane, options);
  std::vector<HitOutcome> outcomes;
  for (std::string& name : meter.names()) outcomes.push_back({std::move(name), {}});
  for (size_t i = 0; i < sessions.size(); ++i) {
    IKV_RETURN_IF_ERROR(run_session(
        *lane, meter, sessions[i], options, [&](int32_t done) { progress(i, done); }, outcomes));
  }
  return outcomes;
}

Json hits_to_json(const std::vector<HitOutcome>& outcomes, const HitOptions& options) {
  Json json;
  size_t num_turns = 0;
  size_t num_sessions = 0;
  for (const auto& session : outcomes.front().turns) {
    num_turns += session.size();
    num_sessions += session.empty() ? 0 : 1;
  }
  json["turns"] = num_turns;
  json["sessions"] = num_sessions;
  json["wanted_share"] = options.wanted_share;
  json["step_stride"] = options.step_stride;
  json["layer_stride"] = options.layer_stride;
  for (const HitOutcome& outcome : outcomes) {
    Json entry;
    entry["name"] = outcome.name;
    for (size_t i = 0; i < kHitBudgets.size(); ++i) {
      entry["budgets"].push_back(budget_to_json(outcome, outcomes.front(), i));
    }
    json["policies"].push_back(std::move(entry));
  }
  return json;
}

std::string hits_to_table(const Json& json) {
  char line[256];
  std::snprintf(
      line, sizeof line,
      "%zu turns of %zu sessions; wanted: the %g %% of tokens with most attention a step\n"
      "pages hot by             25 %%: tokens  mass   of oracle  unpinned | 50 %%: tokens  "
      "mass   of oracle  unpinned\n",
      json["turns"].get<size_t>(), json["sessions"].get<size_t>(),
      json["wanted_share"].get<double>() * 100);
  std::string text = line;
  for (const Json& policy : json["policies"]) {
    std::snprintf(line, sizeof line, "%-24s", policy["name"].get<std::string>().c_str());
    text += line;
    for (const Json& b : policy["budgets"]) {
      std::snprintf(line, sizeof line, "       %.3f   %.3f  %.3f      %.3f    ",
                    b["tokens"].get<double>(), b["mass"].get<double>(),
                    b["mass_of_oracle"].get<double>(), b["free_mass"].get<double>());
      text += line;
    }
    text += "\n";
  }
  return text;
}

}  // namespace ikv
