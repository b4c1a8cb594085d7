// Level-1 scores kept from turn to turn: only pages that the change of intent can have moved across
// the border are scored again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "relevance/centre_radius.h"
#include "relevance/group_mass.h"

namespace ikv {

/// The k most massive pages of one KV head for a changing intent, by a scorer with centre and
/// radius (cosine, dot, minmax, box). The result is always that of scoring everything again.
///
/// A change of a query from q to q' moves the score of a page by s·(Δq·c + (|q'| − |q|)·r). What
/// the average centre and radius account for is the same for all pages and is added exactly; the
/// rest is at most s·‖Δq‖·(‖c − c̄‖ + ‖r − r̄‖), far less than s·‖Δq‖·(‖c‖ + ‖r‖), since keys of one
/// head have much in common. Such bounds add up over turns until a page is scored again.
///
/// Measured (SmolLM2, two sessions of 3k tokens, 87 pages, 8 queries of 3 heads): when all queries
/// are new, as from turn to turn, every page is scored again; with one of 8 new, an eighth of the
/// scores. The bounds alone save only when queries move by less than some per mille.
class IncrementalTopPages {
 public:
  /// Scores all pages of `data` for `group`. Errors: kInvalidArgument, kUnsupported (a kind without
  /// centre and radius).
  static Result<IncrementalTopPages> create(ScorerKind kind, GroupReduce reduce,
                                            const PageData& data, const QueryGroup& group);

  /// The `k` pages of greatest mass for `group`, ascending; ties go to the later page. Pages are
  /// compared by reduce_to_mass() over all of them. `group` must have the shape of the one before.
  Result<std::vector<int32_t>> top_pages(const QueryGroup& group, size_t k);

  size_t num_pages() const { return shape_.log_tokens.size(); }
  /// Scores of a page for a row, all of which a full score computes.
  size_t num_scores() const { return score_.size(); }
  /// How many of them the last top_pages() computed, and all calls. Rows whose query is the same
  /// keep theirs: an intent that slides by one token replaces one of its queries, in place.
  size_t last_rescored() const { return last_rescored_; }
  uint64_t total_rescored() const { return total_rescored_; }

 private:
  IncrementalTopPages() = default;
  struct Interval {
    std::vector<float> low, high;  // mass of each page
  };
  void move_queries(const QueryGroup& group);
  size_t rescore(const QueryGroup& group, size_t page);
  bool is_exact(size_t page) const;
  Interval mass_interval(const QueryGroup& group) const;
  size_t rescore_undecided(const QueryGroup& group, const Interval& interval, size_t k);

  GroupReduce reduce_ = GroupReduce::kMax;
  CentreRadius shape_;
  std::vector<float> mean_centre_, mean_radius_;
  std::vector<float> spread_;  // ‖c − c̄‖ + ‖r − r̄‖ of each page
  int group_size_ = 0;
  int num_queries_ = 0;
  float scale_ = 0.0f;
  std::vector<float> queries_;  // of the last call
  std::vector<float> score_;    // [row][page]
  std::vector<float> bound_;    // [row][page]: |true score − score_| is at most this; 0: exact
  size_t last_rescored_ = 0;
  uint64_t total_rescored_ = 0;
};

}  // namespace ikv
