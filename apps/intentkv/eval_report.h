// The results of `intentkv eval` as JSON and as a table.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval_replay.h"

namespace ikv {

/// Summary of one variant: mean_kl, p99_kl, mean_dnll with 95 % intervals by session, top1, tokens,
/// turns, sessions, peak_kv_bytes, f16_kv_bytes (of the session with the greatest peak, and the
/// share as a mean over sessions), kv_bytes_read_per_token, attended_share, decode_ms_per_token.
nlohmann::ordered_json summarise(const EvalVariant& variant, const EvalOutcome& outcome);

/// One line a record, JSONL.
std::string records_to_jsonl(const EvalVariant& variant, const EvalOutcome& outcome,
                             const std::vector<EvalSession>& sessions);

/// Summaries side by side, for people.
std::string summaries_to_table(const std::vector<nlohmann::ordered_json>& summaries);

}  // namespace ikv
