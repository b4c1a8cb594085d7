// From scores of rows to the mass of pages: normalisation, queries, heads of a group, sharing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/page_mass.h"
#include "relevance/page_data.h"
#include "relevance/page_scorer.h"

namespace ikv {

/// How the heads of a group, or KV heads that decide together, are joined.
enum class GroupReduce : uint8_t {
  kMax,   ///< what any one of them wants
  kMean,  ///< what they want on average
};

/// Mass of `num_pages` pages from logarithms of it by row ([row][page], as PageScorer gives them):
/// each row is normalised over the pages (they are what can be pruned), the queries of a head are
/// averaged with the group's weights, the heads reduced. With kMean masses sum to 1, with kMax to
/// between 1 and group_size. A row of -infinity alone counts as all pages alike. Weights that are
/// all zero count as equal. Exact to float rounding.
void reduce_to_mass(std::span<const float> log_mass, const QueryGroup& group, size_t num_pages,
                    GroupReduce reduce, std::span<float> mass);

/// Two stages: a cheap scorer over all pages, a fine one over the best of them.
struct TwoStageOptions {
  ScorerKind coarse = ScorerKind::kMoment;
  ScorerKind fine = ScorerKind::kExact;
  float candidate_share = 0.25f;  ///< of the pages, that the fine scorer sees; 0..1
  int32_t min_candidates = 8;
  GroupReduce reduce = GroupReduce::kMax;
  uint64_t seed = 0;
};

/// What each stage touched.
struct StageCounts {
  int64_t coarse_pages = 0;
  int64_t fine_pages = 0;
  int64_t fine_tokens = 0;
  StageCounts& operator+=(const StageCounts& other) {
    coarse_pages += other.coarse_pages;
    fine_pages += other.fine_pages;
    fine_tokens += other.fine_tokens;
    return *this;
  }
};

/// Mass of `pages` with one scorer.
Status score_one_stage(const PageScorer& scorer, const PageData& data, const QueryGroup& group,
                       std::span<const int32_t> pages, GroupReduce reduce, std::span<float> mass);

/// Mass of `pages` with two. Pages that the fine scorer did not see keep their coarse estimate,
/// moved in each row by the mean difference of the two over those it saw, and no greater than the
/// least that it saw: an estimate that runs high (minmax) must not put them before what was looked
/// at. `counts` is added to. Errors: kInvalidArgument, also for a share outside 0..1.
Status score_two_stages(const TwoStageOptions& options, const PageData& data,
                        const QueryGroup& group, std::span<const int32_t> pages,
                        std::span<float> mass, StageCounts& counts);

/// Joins the masses of KV heads ([kv_head of all layers][page], layer by layer) to the sets that
/// `sharing` asks for. Within a layer heads are joined by `reduce`, layers by the mean: a maximum
/// over some hundred heads would keep whatever one of them fancies. kInvalidArgument if the number
/// of values does not fit.
Result<PageMass> share_mass(std::vector<float> mass, std::span<const int> kv_heads,
                            size_t num_pages, PageSharing sharing, GroupReduce reduce);

}  // namespace ikv
