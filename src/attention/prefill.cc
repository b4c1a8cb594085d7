// attend_prefill().
#include <algorithm>
#include <vector>

#include "attention/attention_scratch.h"
#include "attention/paged_attention.h"
#include "attention/prefill_kernels.h"

namespace ikv {
namespace {

/// Rows one by one by the decode kernels, for targets without kernels of their own.
void attend_rows(const AttentionSpec& spec, const PrefillJob& job, DecodePlan& plan,
                 RunBuffers& buffers) {
  std::vector<KvPageView> pages(job.pages.begin(), job.pages.end());
  pages.push_back(job.own);
  std::vector<float> mass(job.page_mass != nullptr ? pages.size() : 0);
  if (job.page_mass != nullptr) std::fill_n(job.page_mass, pages.size(), 0.0f);
  float* logits = buffers.logits.data();
  for (int row = 0; row < job.num_rows; ++row) {
    DecodeJob one;
    one.q = job.q + static_cast<size_t>(row) * job.q_stride;
    one.out = job.out + static_cast<size_t>(row) * job.out_stride;
    one.position = job.first_position + row;
    one.pages = pages;
    const bool observed = job.page_mass != nullptr && row >= job.mass_first_row;
    if (observed) one.page_mass = mass.data();
    plan.plan(spec, one);
    plan.prepare_queries(spec, one);
    for (size_t r = 0; r < plan.num_runs(); ++r) {
      plan.gather_run_keys(spec, r, buffers.keys[0]);
      plan.gather_run_values(spec, r, buffers.values[0]);
      plan.score_run(spec, r, buffers.keys[0], nullptr, logits, kRunCapacity);
      plan.attend_run(spec, one, r, buffers.values[0], logits, kRunCapacity);
    }
    plan.merge(spec, one);
    for (size_t p = 0; observed && p < pages.size(); ++p) job.page_mass[p] += mass[p];
  }
}

}  // namespace

AttentionScratch::AttentionScratch() : impl_(std::make_unique<Impl>()) {}
AttentionScratch::~AttentionScratch() = default;
AttentionScratch::AttentionScratch(AttentionScratch&&) noexcept = default;
AttentionScratch& AttentionScratch::operator=(AttentionScratch&&) noexcept = default;

void attend_prefill(const AttentionSpec& spec, std::span<const PrefillJob> jobs,
                    AttentionScratch& scratch, ThreadPool& threads) {
  AttentionScratch::Impl& s = scratch.impl();
  const auto group = static_cast<size_t>(spec.num_heads / spec.num_kv_heads);
  const auto num_threads = static_cast<size_t>(threads.num_threads());
  s.reserve(num_threads, num_threads, group);
  if (s.prefills.size() < num_threads) s.prefills.resize(num_threads);
  const PrefillKernels* kernels = prefill_kernels(cpu_isa());
  threads.parallel_for(jobs.size(), [&](size_t j, int thread) {
    const auto t = static_cast<size_t>(thread);
    if (kernels != nullptr) {
      s.prefills[t].run(spec, jobs[j], *kernels);
    } else {
      attend_rows(spec, jobs[j], s.plans[t], s.buffers[t]);
    }
  });
}

}  // namespace ikv
