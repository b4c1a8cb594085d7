#include "eval_replay.h"

#include <algorithm>
#include <memory>
#include <utility>

namespace ikv {
namespace {

// All lanes of one session.
class SessionReplay {
 public:
  SessionReplay(ReplayLane& reference, std::vector<ReplayLane*> lanes, const EvalSession& session,
                int32_t min_history)
      : reference_(reference),
        lanes_(std::move(lanes)),
        session_(session),
        min_history_(min_history) {}

  Status run(int32_t index, std::vector<EvalOutcome>& outcomes,
             const std::function<void(int32_t)>& progress) {
    IKV_RETURN_IF_ERROR(reference_.begin());
    for (ReplayLane* lane : lanes_) IKV_RETURN_IF_ERROR(lane->begin());
    LogicalPos done = 0;
    for (const EvalTurn& turn : session_.turns) {
      progress(done);
      IKV_RETURN_IF_ERROR(prefill(done, turn.begin));
      const bool recorded = turn.begin >= min_history_;
      for (LogicalPos p = turn.begin; p < turn.end; ++p) {
        if (recorded) record(index, turn, p, outcomes);
        // The last one's own evaluation belongs to the next turn's prefill.
        if (p + 1 < turn.end) IKV_RETURN_IF_ERROR(decode(p));
      }
      if (recorded) {
        for (EvalOutcome& outcome : outcomes) ++outcome.num_turns;
      }
      done = turn.end - 1;
    }
    return {};
  }

 private:
  Status prefill(LogicalPos begin, LogicalPos end) {
    const auto tokens = std::span<const TokenId>(session_.tokens)
                            .subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    IKV_RETURN_IF_ERROR(reference_.prefill(tokens, true));
    for (ReplayLane* lane : lanes_) IKV_RETURN_IF_ERROR(lane->prefill(tokens, true));
    return {};
  }

  Status decode(LogicalPos p) {
    const TokenId token = session_.tokens[static_cast<size_t>(p)];
    IKV_RETURN_IF_ERROR(reference_.decode(token));
    for (ReplayLane* lane : lanes_) IKV_RETURN_IF_ERROR(lane->decode(token));
    return {};
  }

  void record(int32_t index, const EvalTurn& turn, LogicalPos p,
              std::vector<EvalOutcome>& outcomes) const {
    const TokenId actual = session_.tokens[static_cast<size_t>(p)];
    for (size_t i = 0; i < lanes_.size(); ++i) {
      EvalRecord record{index, turn.message, p, actual, {}};
      record.difference = compare_logits(reference_.logits(), lanes_[i]->logits(), actual);
      outcomes[i].records.push_back(record);
    }
  }

  ReplayLane& reference_;
  std::vector<ReplayLane*> lanes_;
  const EvalSession& session_;
  int32_t min_history_;
};

size_t f16_bytes(const Model& model, size_t num_tokens) {
  size_t bytes = 0;
  for (int layer = 0; layer < model.config().num_layers; ++layer) {
    const AttentionSpec& spec = model.attention_spec(layer);
    bytes += static_cast<size_t>(spec.num_kv_heads) * static_cast<size_t>(spec.head_dim) * 4;
  }
  return bytes * num_tokens;
}

}  // namespace

Result<std::vector<EvalOutcome>> run_eval(const Model& model, const KeyCodebooks* codebooks,
                                          ThreadPool& threads, const ReplayConfig& reference,
                                          const std::vector<EvalVariant>& variants,
                                          const std::vector<EvalSession>& sessions,
                                          int32_t min_history, const EvalProgress& progress) {
  size_t longest = 0;
  for (const EvalSession& session : sessions) longest = std::max(longest, session.tokens.size());
  const auto max_tokens = static_cast<int32_t>(longest);
  IKV_ASSIGN_OR_RETURN(const auto reference_lane,
                       ReplayLane::create(model, nullptr, threads, reference, max_tokens));
  std::vector<std::unique_ptr<ReplayLane>> lanes;
  std::vector<ReplayLane*> pointers;
  for (const EvalVariant& variant : variants) {
    const KvPolicy& policy = variant.config.policy;
    IKV_ASSIGN_OR_RETURN(
        auto lane, ReplayLane::create(model, policy.asks_codes() ? codebooks : nullptr, threads,
                                      variant.config, max_tokens));
    pointers.push_back(lane.get());
    lanes.push_back(std::move(lane));
  }
  std::vector<EvalOutcome> outcomes(variants.size());
  for (size_t i = 0; i < sessions.size(); ++i) {
    const auto all = static_cast<int32_t>(sessions[i].tokens.size());
    IKV_RETURN_IF_ERROR(
        SessionReplay(*reference_lane, pointers, sessions[i], min_history)
            .run(static_cast<int32_t>(i), outcomes, [&](int32_t done) { progress(i, done, all); }));
    for (size_t v = 0; v < variants.size(); ++v) {
      outcomes[v].costs.push_back(lanes[v]->cost());
      outcomes[v].f16_kv_bytes.push_back(f16_bytes(model, sessions[i].tokens.size()));
      outcomes[v].session_tokens.push_back(all);
    }
  }
  return outcomes;
}

}  // namespace ikv
