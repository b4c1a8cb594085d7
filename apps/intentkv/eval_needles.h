// Needles: is a fact that was given long ago still found after the intent has shifted?
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval_data.h"
#include "eval_replay.h"

namespace ikv {

/// One answer on one variant, teacher-forced: mean negative log-likelihood of its tokens in nats.
struct NeedleRecord {
  int32_t session = 0;
  std::string probe;
  std::string pair;
  LogicalPos position = 0;  ///< tokens before the answer
  int32_t num_tokens = 0;   ///< of the answer
  double nll_full = 0;
  double nll = 0;
};

/// Questions of one variant.
struct NeedleOutcome {
  std::vector<NeedleRecord> records;
};

/// Replays the sessions on the full cache and on all variants; at each place where questions belong
/// they are asked on the side, each as if it were the next user message, and everything is put
/// back. Questions asked with less than `min_history` tokens before them are passed over. Errors:
/// those of the lanes.
Result<std::vector<NeedleOutcome>> run_needles(const Model& model, const KeyCodebooks* codebooks,
                                               ThreadPool& threads, const ReplayConfig& reference,
                                               const std::vector<EvalVariant>& variants,
                                               const std::vector<EvalSession>& sessions,
                                               int32_t min_history, const EvalProgress& progress);

/// By probe: number, NLL on the full cache and on the variant, their difference with a 95 %
/// interval by session; the drop from `near` to `end` of the questions that were asked at both; all
/// records.
nlohmann::ordered_json needles_to_json(const EvalVariant& variant, const NeedleOutcome& outcome,
                                       const std::vector<EvalSession>& sessions);
/// The same for people.
std::string needles_to_table(const std::vector<nlohmann::ordered_json>& summaries);

}  // namespace ikv
