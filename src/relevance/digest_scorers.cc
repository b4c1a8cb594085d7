#include <cmath>

#include "core/dot.h"
#include "relevance/centre_radius.h"
#include "relevance/scorers.h"

namespace ikv {
namespace {

class CentreRadiusScorer : public PageScorer {
 public:
  explicit CentreRadiusScorer(ScorerKind kind) : kind_(kind) {}
  ScorerKind kind() const override { return kind_; }

 private:
  Status score_checked(const PageData& data, const QueryGroup& group,
                       std::span<const int32_t> pages, float* log_mass) const override {
    IKV_ASSIGN_OR_RETURN(const CentreRadius shape, make_centre_radius(kind_, data));
    for (size_t row = 0; row < group.num_rows(); ++row) {
      for (const int32_t page : pages) {
        *log_mass++ = shape.score(group.row(row), group.scale, static_cast<size_t>(page));
      }
    }
    return {};
  }

  ScorerKind kind_;
};

class MomentScorer : public PageScorer {
 public:
  ScorerKind kind() const override { return ScorerKind::kMoment; }

 private:
  Status score_checked(const PageData& data, const QueryGroup& group,
                       std::span<const int32_t> pages, float* log_mass) const override {
    if (data.mean.empty() || data.deviation.empty()) {
      return invalid_argument(
          "relevance: scorer 'moment' needs mean and standard deviation of each page");
    }
    const size_t width = static_cast<size_t>(data.head_dim);
    for (size_t row = 0; row < group.num_rows(); ++row) {
      const float* q = group.row(row);
      for (const int32_t page : pages) {
        const size_t begin = static_cast<size_t>(page) * width;
        const float* deviation = data.deviation.data() + begin;
        float variance = 0.0f;
        for (size_t c = 0; c < width; ++c) {
          const float spread = q[c] * deviation[c];
          variance += spread * spread;
        }
        *log_mass++ = std::log(static_cast<float>(data.num_tokens[static_cast<size_t>(page)])) +
                      group.scale * dot_product(q, data.mean.data() + begin, width) +
                      0.5f * group.scale * group.scale * variance;
      }
    }
    return {};
  }
};

}  // namespace

std::unique_ptr<PageScorer> make_digest_scorer(ScorerKind kind) {
  if (kind == ScorerKind::kMoment) return std::make_unique<MomentScorer>();
  return std::make_unique<CentreRadiusScorer>(kind);
}

}  // namespace ikv
