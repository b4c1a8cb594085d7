#include "sampling/penalties.h"

namespace ikv {

void PenaltyWindow::add(TokenId token) {
  if (window_tokens_ == 0) return;
  ++counts_[token];
  if (window_tokens_ < 0) return;
  order_.push_back(token);
  if (order_.size() <= static_cast<size_t>(window_tokens_)) return;
  const auto oldest = counts_.find(order_.front());
  if (--oldest->second == 0) counts_.erase(oldest);
  order_.pop_front();
}

void PenaltyWindow::apply(float repeat, float frequency, float presence,
                          std::span<float> logits) const {
  for (const auto& [token, count] : counts_) {
    if (token < 0 || static_cast<size_t>(token) >= logits.size()) continue;
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0.0f ? logit / repeat : logit * repeat;
    logit -= frequency * static_cast<float>(count) + presence;
  }
}

}  // namespace ikv
