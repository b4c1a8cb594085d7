// attend_decode(), score_entries(), attend_scored().
#include <algorithm>
#include <cmath>

#include "attention/attention_scratch.h"
#include "attention/paged_attention.h"
#include "base/check.h"

namespace ikv {
namespace {

// Below this many jobs, waking other threads costs more than planning or merging here.
constexpr size_t kFewJobs = 4;

template <typename Task>
void for_jobs(size_t num_jobs, bool parallel, ThreadPool& threads, const Task& task) {
  if (parallel) {
    threads.parallel_for(num_jobs, task);
  } else {
    for (size_t i = 0; i < num_jobs; ++i) task(i, 0);
  }
}

struct LocalScratch {
  DecodePlan plan;
  RunBuffers buffers;
};

LocalScratch& local_scratch(int group) {
  static thread_local LocalScratch scratch;
  scratch.buffers.logits.resize(static_cast<size_t>(group) * kRunCapacity);
  return scratch;
}

}  // namespace

void attend_decode(const AttentionSpec& spec, std::span<const DecodeJob> jobs,
                   AttentionScratch& scratch, ThreadPool& threads) {
  AttentionScratch::Impl& s = scratch.impl();
  const auto group = static_cast<size_t>(spec.num_heads / spec.num_kv_heads);
  s.reserve(jobs.size(), static_cast<size_t>(threads.num_threads()), group);
  const bool lists = std::any_of(jobs.begin(), jobs.end(),
                                 [](const DecodeJob& job) { return !job.all_entries; });
  for_jobs(jobs.size(), lists || jobs.size() > kFewJobs, threads, [&](size_t j, int) {
    s.plans[j].plan(spec, jobs[j]);
    s.plans[j].prepare_queries(spec, jobs[j]);
  });
  s.runs.clear();
  for (uint32_t j = 0; j < jobs.size(); ++j) {
    for (uint32_t r = 0; r < s.plans[j].num_runs(); ++r) s.runs.push_back({j, r});
  }
  threads.parallel_for(s.runs.size(), [&](size_t i, int thread) {
    const auto [j, r] = s.runs[i];
    RunBuffers& buffers = s.buffers[static_cast<size_t>(thread)];
    s.plans[j].score_run(spec, r, buffers.rows, buffers.logits.data(), kRunCapacity);
    s.plans[j].attend_run(spec, jobs[j], r, buffers.rows, buffers.logits.data(), kRunCapacity);
  });
  for_jobs(jobs.size(), jobs.size() > kFewJobs, threads,
           [&](size_t j, int) { s.plans[j].merge(spec, jobs[j]); });
}

void score_entries(const AttentionSpec& spec, const DecodeJob& job,
                   std::span<const PageEntry> entries, float* logits, size_t stride) {
  const int group = spec.num_heads / spec.num_kv_heads;
  LocalScratch& local = local_scratch(group);
  DecodePlan& plan = local.plan;
  plan.plan_entries(spec, job, entries);
  plan.prepare_queries(spec, job);
  const std::span<const PageEntry> readable = plan.entries();
  float* run_logits = local.buffers.logits.data();
  size_t next = 0;  // of `entries`
  for (size_t r = 0, done = 0; r < plan.num_runs(); ++r) {
    plan.score_run(spec, r, local.buffers.rows, run_logits, kRunCapacity);
    for (int i = 0; i < plan.run_size(r); ++i, ++done, ++next) {
      for (; entries[next] != readable[done]; ++next) {
        for (int g = 0; g < group; ++g) logits[static_cast<size_t>(g) * stride + next] = -INFINITY;
      }
      for (int g = 0; g < group; ++g) {
        logits[static_cast<size_t>(g) * stride + next] = run_logits[g * kRunCapacity + i];
      }
    }
  }
  for (; next < entries.size(); ++next) {
    for (int g = 0; g < group; ++g) logits[static_cast<size_t>(g) * stride + next] = -INFINITY;
  }
}

void attend_scored(const AttentionSpec& spec, const DecodeJob& job,
                   std::span<const PageEntry> entries, const float* logits, size_t stride) {
  const int group = spec.num_heads / spec.num_kv_heads;
  LocalScratch& local = local_scratch(group);
  DecodePlan& plan = local.plan;
  plan.plan_entries(spec, job, entries);
  const std::span<const PageEntry> readable = plan.entries();
  float* run_logits = local.buffers.logits.data();
  size_t next = 0;
  for (size_t r = 0, done = 0; r < plan.num_runs(); ++r) {
    for (int i = 0; i < plan.run_size(r); ++i, ++done, ++next) {
      while (entries[next] != readable[done]) ++next;
      for (int g = 0; g < group; ++g) {
        run_logits[g * kRunCapacity + i] = logits[static_cast<size_t>(g) * stride + next];
      }
    }
    plan.attend_run(spec, job, r, local.buffers.rows, run_logits, kRunCapacity);
  }
  plan.merge(spec, job);
}

}  // namespace ikv
