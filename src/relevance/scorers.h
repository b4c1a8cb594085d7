// The families of page scorers; page_scorer.h is what others use.
#pragma once

#include <cstdint>
#include <memory>

#include "relevance/page_scorer.h"

namespace ikv {

/// kCosine, kDot, kMinMax, kBox, kMoment: from digests.
std::unique_ptr<PageScorer> make_digest_scorer(ScorerKind kind);
/// kCode, kExact: from logits of single tokens.
std::unique_ptr<PageScorer> make_token_scorer(ScorerKind kind);
/// kLexical, kRandom, kRecent: without queries; all rows are equal.
std::unique_ptr<PageScorer> make_plain_scorer(ScorerKind kind, uint64_t seed);

}  // namespace ikv
