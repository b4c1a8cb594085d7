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

// Runs that a thread takes at once: several, as only the first of them is not prefetched; few
// enough that the threads end together.
size_t chunk_runs(size_t num_runs, size_t num_threads) {
  return std::clamp<size_t>(num_runs / (num_threads * 6), 1, 8);
}

void gather(const AttentionSpec& spec, AttentionScratch::Impl& s, size_t i, RunBuffers& buffers) {
  const auto [job, run] = s.runs[i];
  s.plans[job].gather_run_keys(spec, run, buffers.keys[i % 2]);
  s.plans[job].gather_run_values(spec, run, buffers.values[i % 2]);
}

void attend_runs(const AttentionSpec& spec, std::span<const DecodeJob> jobs,
                 AttentionScratch::Impl& s, size_t begin, size_t end, RunBuffers& buffers) {
  const auto prefetch = [&](size_t i) {
    if (i < end) s.plans[s.runs[i].job].prefetch_run_scales(spec, s.runs[i].run);
  };
  prefetch(begin);
  prefetch(begin + 1);
  gather(spec, s, begin, buffers);
  for (size_t i = begin; i < end; ++i) {
    RowStream next;
    if (i + 1 < end) {
      prefetch(i + 2);
      gather(spec, s, i + 1, buffers);
      const RunRows& keys = buffers.keys[(i + 1) % 2];
      const RunRows& values = buffers.values[(i + 1) % 2];
      next = {keys.rows, values.rows, keys.count, keys.lines, values.lines};
    }
    const auto [job, run] = s.runs[i];
    float* logits = buffers.logits.data();
    s.plans[job].score_run(spec, run, buffers.keys[i % 2], &next, logits, kRunCapacity);
    s.plans[job].attend_run(spec, jobs[job], run, buffers.values[i % 2], logits, kRunCapacity);
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
  const bool lists =
      std::any_of(jobs.begin(), jobs.end(), [](const DecodeJob& job) { return !job.all_entries; });
  for_jobs(jobs.size(), lists || jobs.size() > kFewJobs, threads, [&](size_t j, int) {
    s.plans[j].plan(spec, jobs[j]);
    s.plans[j].prepare_queries(spec, jobs[j]);
  });
  s.runs.clear();
  for (uint32_t j = 0; j < jobs.size(); ++j) {
    for (uint32_t r = 0; r < s.plans[j].num_runs(); ++r) s.runs.push_back({j, r});
  }
  const size_t num_runs = s.runs.size();
  const size_t chunk = chunk_runs(num_runs, static_cast<size_t>(threads.num_threads()));
  threads.parallel_for((num_runs + chunk - 1) / chunk, [&](size_t c, int thread) {
    const size_t begin = c * chunk;
    attend_runs(spec, jobs, s, begin, std::min(begin + chunk, num_runs),
                s.buffers[static_cast<size_t>(thread)]);
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
  const bool all_readable = readable.size() == entries.size();
  float* run_logits = local.buffers.logits.data();
  RunRows* keys = local.buffers.keys;
  size_t next = 0;  // of `entries`
  if (plan.num_runs() > 0) plan.gather_run_keys(spec, 0, keys[0]);
  for (size_t r = 0, done = 0; r < plan.num_runs(); ++r) {
    RowStream stream;
    if (r + 1 < plan.num_runs()) {
      const RunRows& ahead = keys[(r + 1) % 2];
      plan.gather_run_keys(spec, r + 1, keys[(r + 1) % 2]);
      stream = {ahead.rows, ahead.rows, ahead.count, ahead.lines, 0};
    }
    const int size = plan.run_size(r);
    // A whole run of one piece is written in place; kernels may write past a shorter one, and past
    // the last piece of a run that mixes formats.
    if (all_readable && size == kRunEntries && keys[r % 2].num_segments == 1) {
      plan.score_run(spec, r, keys[r % 2], &stream, logits + done, stride);
      next = done += kRunEntries;
      continue;
    }
    plan.score_run(spec, r, keys[r % 2], &stream, run_logits, kRunCapacity);
    for (int i = 0; i < size; ++i, ++done, ++next) {
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
  const bool all_readable = readable.size() == entries.size();
  float* run_logits = local.buffers.logits.data();
  RunRows* values = local.buffers.values;
  size_t next = 0;
  if (plan.num_runs() > 0) {
    plan.gather_run_values(spec, 0, values[0]);
    prefetch_rows(values[0]);
  }
  for (size_t r = 0, done = 0; r < plan.num_runs(); ++r) {
    if (r + 1 < plan.num_runs()) {
      plan.gather_run_values(spec, r + 1, values[(r + 1) % 2]);
      prefetch_rows(values[(r + 1) % 2]);
    }
    const int size = plan.run_size(r);
    for (int g = 0; g < group && all_readable; ++g) {
      std::copy_n(logits + static_cast<size_t>(g) * stride + done, size,
                  run_logits + g * kRunCapacity);
    }
    for (int i = 0; i < size && !all_readable; ++i, ++next) {
      while (entries[next] != readable[done + static_cast<size_t>(i)]) ++next;
      for (int g = 0; g < group; ++g) {
        run_logits[g * kRunCapacity + i] = logits[static_cast<size_t>(g) * stride + next];
      }
    }
    done += static_cast<size_t>(size);
    plan.attend_run(spec, job, r, values[r % 2], run_logits, kRunCapacity);
  }
  plan.merge(spec, job);
}

}  // namespace ikv
