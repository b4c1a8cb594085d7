#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "relevance/scorers.h"

namespace ikv {
namespace {

// log of the sum of exp(x); -infinity for none and for all -infinity.
float log_sum_exp(const float* x, size_t size) {
  const float max = *std::max_element(x, x + size);
  if (!std::isfinite(max)) return max;
  float total = 0.0f;
  for (size_t i = 0; i < size; ++i) total += std::exp(x[i] - max);
  return max + std::log(total);
}

class TokenScorer : public PageScorer {
 public:
  explicit TokenScorer(ScorerKind kind) : kind_(kind) {}
  ScorerKind kind() const override { return kind_; }

 private:
  Status score_checked(const PageData& data, const QueryGroup& group,
                       std::span<const int32_t> pages, float* log_mass) const override {
    const PageTokenLogits* source = kind_ == ScorerKind::kCode ? data.code_logits : data.key_logits;
    if (source == nullptr) {
      return invalid_argument("relevance: scorer '" + std::string(scorer_name(kind_)) + "' needs " +
                              (kind_ == ScorerKind::kCode ? "key codes" : "keys"));
    }
    const size_t rows = group.num_rows();
    std::vector<float> logits;
    for (size_t i = 0; i < pages.size(); ++i) {
      const size_t count = static_cast<size_t>(data.num_tokens[static_cast<size_t>(pages[i])]);
      logits.resize(rows * count);
      source->page_logits(pages[i], group, count, logits.data());
      for (size_t row = 0; row < rows; ++row) {
        log_mass[row * pages.size() + i] = log_sum_exp(logits.data() + row * count, count);
      }
    }
    return {};
  }

  ScorerKind kind_;
};

}  // namespace

std::unique_ptr<PageScorer> make_token_scorer(ScorerKind kind) {
  return std::make_unique<TokenScorer>(kind);
}

}  // namespace ikv
