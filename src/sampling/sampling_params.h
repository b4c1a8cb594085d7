// Checks of the sampling fields of a GenerationConfig, before any of them is used.
#pragma once

#include "base/result.h"
#include "intentkv/config.h"

namespace ikv {

/// Refuses what cannot be sampled with: values that are not numbers or out of range, biases and
/// logprob counts beyond the vocabulary, stop strings that are empty, too many or not UTF-8. The
/// error (kInvalidArgument) names the field by its name in the API, the value and the allowed
/// range.
Status validate_sampling(const GenerationConfig& config, int vocab_size);

/// Limits on stop strings: matching costs a step per byte of text and string.
inline constexpr size_t kMaxStopStrings = 64;
inline constexpr size_t kMaxStopStringBytes = 4096;

/// Most alternatives that can be reported for a token.
inline constexpr int kMaxLogprobs = 1000;

}  // namespace ikv
