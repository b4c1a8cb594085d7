// attend_prefill().
#include "attention/attention_scratch.h"
#include "attention/paged_attention.h"
#include "attention/prefill_kernels.h"

namespace ikv {
void attend_prefill(const AttentionSpec& spec, std::span<const PrefillJob> jobs,
                    AttentionScratch& scratch, ThreadPool& threads) {
  AttentionScratch::Impl& s = scratch.impl();
  const auto num_threads = static_cast<size_t>(threads.num_threads());
  if (s.prefills.size() < num_threads) s.prefills.resize(num_threads);
  const PrefillKernels& kernels = prefill_kernels(cpu_isa());
  threads.parallel_for(jobs.size(), [&](size_t j, int thread) {
    s.prefills[static_cast<size_t>(thread)].run(spec, jobs[j], kernels);
  });
}

}  // namespace ikv
