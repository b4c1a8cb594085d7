// Level 1's hit rate: how much of what replies attend to stands in pages that a policy keeps hot.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/replay_lane.h"
#include "eval_data.h"

namespace ikv {

/// Shares of the sealed pages that may be hot, for which hits are counted.
inline constexpr std::array<double, 2> kHitBudgets = {0.25, 0.5};

/// What is sampled, and what counts as wanted.
struct HitOptions {
  double wanted_share = 0.06;  ///< of the tokens, those with most attention at a step
  int step_stride = 8;         ///< every so many steps of a reply
  int layer_stride = 3;        ///< every so many layers
  int32_t min_history = 1024;  ///< replies with less before are not measured
};

/// Hits of one turn at one budget: means over steps, layers and KV heads. Wanted are the tokens of
/// highest attention (mean over the heads of a group) among those in pages that were sealed when
/// the reply began; what came later is hot anyway.
struct HitShare {
  double tokens = 0;       ///< of the wanted tokens, found in hot pages
  double mass = 0;         ///< of their attention
  double free_tokens = 0;  ///< the same without the pinned pages (sink, last 128 tokens), which all
  double free_mass = 0;    ///< policies keep hot within the same budget
};

/// One way of choosing pages, with its hits by session and turn.
struct HitOutcome {
  std::string name;
  std::vector<std::vector<std::array<HitShare, kHitBudgets.size()>>> turns;  ///< [session][turn]
};

/// Replays the sessions on the full cache (nothing is demoted) and measures every policy on the
/// same steps: the oracle (the reply's own wanted mass), sources of intent with exact scores, page
/// scorers with the span, recency, LRU, random. Errors: those of the lane.
Result<std::vector<HitOutcome>> run_hit_rate(const Model& model, const KeyCodebooks* codebooks,
                                             ThreadPool& threads, const ReplayConfig& reference,
                                             const std::vector<EvalSession>& sessions,
                                             const HitOptions& options,
                                             const std::function<void(size_t, int32_t)>& progress);

/// One object a policy: means over turns with 95 % intervals by session, and the share of the
/// oracle's mass.
nlohmann::ordered_json hits_to_json(const std::vector<HitOutcome>& outcomes,
                                    const HitOptions& options);
/// The same for people.
std::string hits_to_table(const nlohmann::ordered_json& json);

}  // namespace ikv
