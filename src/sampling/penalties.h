// PenaltyWindow: the recent tokens that repeat, presence and frequency penalties look at.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>

#include "core/ids.h"

namespace ikv {

/// Counts the last `window_tokens` tokens (-1: all). apply() costs a step per distinct token.
class PenaltyWindow {
 public:
  explicit PenaltyWindow(int window_tokens) : window_tokens_(window_tokens) {}

  void add(TokenId token);

  /// For each token in the window: divides a positive logit by `repeat` and multiplies any other
  /// (Keskar et al. 2019, section 4.1, made sign-safe), then subtracts frequency × count +
  /// presence.
  void apply(float repeat, float frequency, float presence, std::span<float> logits) const;

 private:
  int window_tokens_;
  std::deque<TokenId> order_;  // only while the window is bounded
  std::unordered_map<TokenId, int32_t> counts_;
};

}  // namespace ikv
