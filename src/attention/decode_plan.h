// One decode job cut into runs, and what the runs leave to be merged. Internal to attention.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "attention/entry_rows.h"
#include "attention/paged_attention.h"
#include "attention/query_planes.h"

namespace ikv {

/// What one thread needs to work on a run, and to bring in the next one.
struct RunBuffers {
  RunRows keys[2], values[2];
  std::vector<float> logits;  ///< [group][kRunCapacity]
};

/// A job's readable entries in runs of kRunEntries, the last one shorter. Runs are cut from the
/// list of readable entries, so that masked entries in a list change nothing. Vectors keep their
/// capacity from call to call.
class DecodePlan {
 public:
  /// The runs of `job`'s own entries.
  void plan(const AttentionSpec& spec, const DecodeJob& job);
  /// The runs of the readable ones of `entries`.
  void plan_entries(const AttentionSpec& spec, const DecodeJob& job,
                    std::span<const PageEntry> entries);
  void prepare_queries(const AttentionSpec& spec, const DecodeJob& job);

  size_t num_runs() const { return runs_.size(); }
  int num_entries() const { return num_entries_; }
  /// The readable entries of a list.
  std::span<const PageEntry> entries() const { return entries_; }
  int run_size(size_t run) const { return runs_[run].count; }

  void gather_run_keys(const AttentionSpec& spec, size_t run, RunRows& keys) const {
    gather_keys(spec, runs_[run], queries_.shifts(), keys);
  }
  void prefetch_run_scales(const AttentionSpec& spec, size_t run) const {
    prefetch_scales(spec, runs_[run]);
  }
  void gather_run_values(const AttentionSpec& spec, size_t run, RunRows& values) const {
    gather_values(spec, runs_[run], values);
  }
  /// Logits of a run: logits[g * stride + i]. Rows of `next`, if any, come into the cache
  /// meanwhile.
  void score_run(const AttentionSpec& spec, size_t run, const RunRows& keys, const RowStream* next,
                 float* logits, size_t stride) const;
  /// Softmax of a run's logits (in place) and sum of its values; leaves its part for merge().
  void attend_run(const AttentionSpec& spec, const DecodeJob& job, size_t run,
                  const RunRows& values, float* logits, size_t stride);
  size_t size_bytes() const;
  /// Adds the runs' parts in order, writes job.out and job.page_mass.
  void merge(const AttentionSpec& spec, const DecodeJob& job);

 private:
  void start(const AttentionSpec& spec);
  void finish(const AttentionSpec& spec, const DecodeJob& job);
  void write_mass(const AttentionSpec& spec, const DecodeJob& job, const float* weights);

  int group_ = 0;
  int num_entries_ = 0;
  std::vector<EntrySource> runs_;
  std::vector<PageEntry> entries_;
  QueryPlanes queries_;
  std::vector<float> maxima_, sums_;  ///< [run][group]
  std::vector<float> values_;         ///< [run][group][head_dim]
  std::vector<float> exps_;           ///< [run][group][kRunEntries], if mass is wanted
  std::vector<float> weights_;        ///< [run][group]
};

}  // namespace ikv
