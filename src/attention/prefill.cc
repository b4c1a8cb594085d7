// attend_prefill().
#include <algorithm>
#include <vector>

#include "attention/attention_scratch.h"
#include "attention/paged_attention.h"

namespace ikv {

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
  threads.parallel_for(jobs.size(), [&](size_t j, int thread) {
    const PrefillJob& job = jobs[j];
    std::vector<KvPageView> pages(job.pages.begin(), job.pages.end());
    pages.push_back(job.own);
    std::vector<float> mass(job.page_mass != nullptr ? pages.size() : 0);
    if (job.page_mass != nullptr) std::fill_n(job.page_mass, pages.size(), 0.0f);
    DecodePlan& plan = s.plans[static_cast<size_t>(thread)];
    RunBuffers& buffers = s.buffers[static_cast<size_t>(thread)];
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
        plan.score_run(spec, r, buffers.keys[0], nullptr, buffers.logits.data(), kRunCapacity);
        plan.attend_run(spec, one, r, buffers.values[0], buffers.logits.data(), kRunCapacity);
      }
      plan.merge(spec, one);
      for (size_t p = 0; observed && p < pages.size(); ++p) job.page_mass[p] += mass[p];
    }
  });
}

}  // namespace ikv
