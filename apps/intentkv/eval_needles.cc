#include "eval_needles.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>

namespace ikv {
namespace {

using Json = nlohmann::ordered_json;

class NeedleReplay {
 public:
  NeedleReplay(ReplayLane& reference, std::vector<ReplayLane*> lanes, const EvalSession& session,
               int32_t index, int32_t min_history, std::vector<NeedleOutcome>& outcomes)
      : reference_(reference),
        lanes_(std::move(lanes)),
        session_(session),
        index_(index),
        min_history_(min_history),
        outcomes_(outcomes) {}

  Status run(const std::function<void(int32_t)>& progress) {
    IKV_RETURN_IF_ERROR(reference_.begin());
    for (ReplayLane* lane : lanes_) IKV_RETURN_IF_ERROR(lane->begin());
    LogicalPos done = 0;
    for (size_t i = 0; i < session_.turns.size(); ++i) {
      progress(done);
      const EvalTurn& turn = session_.turns[i];
      const auto prompt =
          std::span<const TokenId>(session_.tokens)
              .subspan(static_cast<size_t>(done), static_cast<size_t>(turn.begin - done));
      IKV_RETURN_IF_ERROR(on_all([&](ReplayLane& lane) {
        return lane.prefill(prompt, true, intent_phase(turn.asked_by, false));
      }));
      for (LogicalPos p = turn.begin; p + 1 < turn.end; ++p) {
        const TokenId token = session_.tokens[static_cast<size_t>(p)];
        IKV_RETURN_IF_ERROR(on_all([&](ReplayLane& lane) { return lane.decode(token); }));
      }
      done = turn.end - 1;
      for (const EvalNeedle& needle : session_.needles) {
        if (needle.after_turn == static_cast<int32_t>(i)) IKV_RETURN_IF_ERROR(ask(needle, done));
      }
    }
    return {};
  }

 private:
  template <typename Call>
  Status on_all(Call call) {
    IKV_RETURN_IF_ERROR(call(reference_));
    for (ReplayLane* lane : lanes_) IKV_RETURN_IF_ERROR(call(*lane));
    return {};
  }

  Status ask(const EvalNeedle& needle, LogicalPos done) {
    const auto position = done + static_cast<LogicalPos>(needle.question.size());
    if (position < min_history_) return {};
    NeedleRecord record{
        index_, needle.probe, needle.pair, position, static_cast<int32_t>(needle.answer.size()), 0,
        0};
    IKV_ASSIGN_OR_RETURN(record.nll_full, reference_.ask(needle.question, needle.answer));
    for (size_t i = 0; i < lanes_.size(); ++i) {
      IKV_ASSIGN_OR_RETURN(record.nll, lanes_[i]->ask(needle.question, needle.answer));
      outcomes_[i].records.push_back(record);
    }
    return {};
  }

  ReplayLane& reference_;
  std::vector<ReplayLane*> lanes_;
  const EvalSession& session_;
  int32_t index_;
  int32_t min_history_;
  std::vector<NeedleOutcome>& outcomes_;
};

Json probe_to_json(const std::string& probe, const NeedleOutcome& outcome, size_t num_sessions) {
  double full = 0;
  double pruned = 0;
  std::vector<std::vector<double>> differences(num_sessions);
  size_t count = 0;
  for (const NeedleRecord& r : outcome.records) {
    if (!probe.empty() && r.probe != probe) continue;
    full += r.nll_full;
    pruned += r.nll;
    differences[static_cast<size_t>(r.session)].push_back(r.nll - r.nll_full);
    ++count;
  }
  const Interval interval = bootstrap_mean(differences);
  const double divisor = static_cast<double>(std::max<size_t>(1, count));
  Json json;
  json["probe"] = probe.empty() ? "all" : probe;
  json["questions"] = count;
  json["nll_full"] = full / divisor;
  json["nll"] = pruned / divisor;
  json["dnll"] = (pruned - full) / divisor;
  json["dnll_95"] = {interval.low, interval.high};
  return json;
}

// Of the questions that were asked at both places.
Json drop_to_json(const NeedleOutcome& outcome, size_t num_sessions) {
  std::map<std::pair<int32_t, std::string>, const NeedleRecord*> near;
  for (const NeedleRecord& r : outcome.records) {
    if (r.probe == "near" && !r.pair.empty()) near[{r.session, r.pair}] = &r;
  }
  double full = 0;
  double pruned = 0;
  size_t count = 0;
  std::vector<std::vector<double>> differences(num_sessions);
  for (const NeedleRecord& r : outcome.records) {
    const auto found = near.find({r.session, r.pair});
    if (r.probe != "end" || found == near.end()) continue;
    const double drop_full = r.nll_full - found->second->nll_full;
    const double drop = r.nll - found->second->nll;
    full += drop_full;
    pruned += drop;
    differences[static_cast<size_t>(r.session)].push_back(drop - drop_full);
    ++count;
  }
  const Interval interval = bootstrap_mean(differences);
  const double divisor = static_cast<double>(std::max<size_t>(1, count));
  Json json;
  json["pairs"] = count;
  json["full"] = full / divisor;
  json["pruned"] = pruned / divisor;
  json["difference"] = (pruned - full) / divisor;
  json["difference_95"] = {interval.low, interval.high};
  return json;
}

}  // namespace

Result<std::vector<NeedleOutcome>> run_needles(const Model& model, const KeyCodebooks* codebooks,
                                               ThreadPool& threads, const ReplayConfig& reference,
                                               const std::vector<EvalVariant>& variants,
                                               const std::vector<EvalSession>& sessions,
                                               int32_t min_history, const EvalProgress& progress) {
  size_t longest = 0;
  for (const EvalSession& session : sessions) {
    for (const EvalNeedle& needle : session.needles) {
      longest =
          std::max(longest, session.tokens.size() + needle.question.size() + needle.answer.size());
    }
  }
  if (longest == 0) return invalid_argument("no session has a question within --max-tokens");
  const auto max_tokens = static_cast<int32_t>(longest);
  IKV_ASSIGN_OR_RETURN(const auto reference_lane,
                       ReplayLane::create(model, nullptr, threads, reference, max_tokens));
  std::vector<std::unique_ptr<ReplayLane>> lanes;
  std::vector<ReplayLane*> pointers;
  for (const EvalVariant& variant : variants) {
    const bool codes = variant.config.policy.asks_codes();
    IKV_ASSIGN_OR_RETURN(auto lane, ReplayLane::create(model, codes ? codebooks : nullptr, threads,
                                                       variant.config, max_tokens));
    pointers.push_back(lane.get());
    lanes.push_back(std::move(lane));
  }
  std::vector<NeedleOutcome> outcomes(variants.size());
  for (size_t i = 0; i < sessions.size(); ++i) {
    const auto all = static_cast<int32_t>(sessions[i].tokens.size());
    NeedleReplay replay(*reference_lane, pointers, sessions[i], static_cast<int32_t>(i),
                        min_history, outcomes);
    IKV_RETURN_IF_ERROR(replay.run([&](int32_t done) { progress(i, done, all); }));
  }
  return outcomes;
}

Json needles_to_json(const EvalVariant& variant, const NeedleOutcome& outcome,
                     const std::vector<EvalSession>& sessions) {
  Json json;
  json["name"] = variant.name;
  json["kv_attend"] = to_string(variant.config.policy.attend.budget);
  json["kv_resident"] = to_string(variant.config.policy.resident);
  json["sessions"] = sessions.size();
  std::vector<std::string> probes;
  for (const NeedleRecord& r : outcome.records) {
    if (std::find(probes.begin(), probes.end(), r.probe) == probes.end()) {
      probes.push_back(r.probe);
    }
  }
  for (const std::string& probe : probes) {
    json["probes"].push_back(probe_to_json(probe, outcome, sessions.size()));
  }
  if (probes.size() != 1) json["probes"].push_back(probe_to_json("", outcome, sessions.size()));
  json["drop_near_to_end"] = drop_to_json(outcome, sessions.size());
  for (const NeedleRecord& r : outcome.records) {
    json["records"].push_back({{"session", sessions[static_cast<size_t>(r.session)].id},
                               {"probe", r.probe},
                               {"pair", r.pair},
                               {"position", r.position},
                               {"tokens", r.num_tokens},
                               {"nll_full", r.nll_full},
                               {"nll", r.nll}});
  }
  return json;
}

std::string needles_to_table(const std::vector<Json>& summaries) {
  char line[256];
  std::string text;
  for (const Json& s : summaries) {
    std::snprintf(line, sizeof line, "%s (attend %s, resident %s), %zu sessions\n",
                  s["name"].get<std::string>().substr(0, 60).c_str(),
                  s["kv_attend"].get<std::string>().c_str(),
                  s["kv_resident"].get<std::string>().c_str(), s["sessions"].get<size_t>());
    text += line;
    text += "  probe    questions  NLL full  pruned   dNLL [95 %]\n";
    for (const Json& p : s["probes"]) {
      std::snprintf(line, sizeof line, "  %-8s %9zu  %8.4f  %7.4f  %+.4f [%+.4f, %+.4f]\n",
                    p["probe"].get<std::string>().c_str(), p["questions"].get<size_t>(),
                    p["nll_full"].get<double>(), p["nll"].get<double>(), p["dnll"].get<double>(),
                    p["dnll_95"][0].get<double>(), p["dnll_95"][1].get<double>());
      text += line;
    }
    const Json& d = s["drop_near_to_end"];
    std::snprintf(line, sizeof line,
                  "  drop near -> end, %zu pairs: full %+.4f, pruned %+.4f, difference %+.4f "
                  "[%+.4f, %+.4f]\n",
                  d["pairs"].get<size_t>(), d["full"].get<double>(), d["pruned"].get<double>(),
                  d["difference"].get<double>(), d["difference_95"][0].get<double>(),
                  d["difference_95"][1].get<double>());
    text += line;
  }
  return text;
}

}  // namespace ikv
