// A conversation as tokens, each of which knows its message.
#pragma once

#include <vector>

#include "core/ids.h"
#include "core/span.h"

namespace ikv {

/// Rendered and tokenised conversation. `spans` are ascending, disjoint and cover all tokens.
struct TokenizedChat {
  std::vector<TokenId> tokens;
  std::vector<Span> spans;
};

}  // namespace ikv
