// A stated intent: what an agent's planner says that the turn is about.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"
#include "intentkv/intent.h"

namespace ikv {

/// Longest text that intent_text() makes; what an intent costs is a run of the model over it.
inline constexpr size_t kMaxStatedIntentBytes = 8192;

/// The text that the model reads in the side branch. Its queries, not its words, are the intent: it
/// never enters the transcript. Errors: kInvalidArgument (nothing stated, a slot without a name,
/// longer than kMaxStatedIntentBytes, with the figures).
Result<std::string> intent_text(const StatedIntent& intent);

}  // namespace ikv
