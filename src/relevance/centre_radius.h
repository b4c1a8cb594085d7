// The scorers that are linear in a page's centre and radius: cosine, dot, minmax, box.
#pragma once

#include <vector>

#include "base/result.h"
#include "relevance/page_data.h"
#include "relevance/page_scorer.h"

namespace ikv {

/// score = log n + scale * (q·centre + |q|·radius), |q| taken by channel. All four kinds have this
/// form, and so one kernel and one bound on what a change of q can do.
struct CentreRadius {
  int head_dim = 0;
  std::vector<float> centre;  ///< [page][head_dim]
  std::vector<float> radius;  ///< [page][head_dim]; empty: 0
  std::vector<float> log_tokens;

  float score(const float* query, float scale, size_t page) const;
};

/// True for the four kinds.
bool has_centre_radius(ScorerKind kind);

/// Centres and radii of all pages. kInvalidArgument: what `kind` needs is missing.
Result<CentreRadius> make_centre_radius(ScorerKind kind, const PageData& data);

}  // namespace ikv
