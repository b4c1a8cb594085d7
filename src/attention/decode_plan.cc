#include "attention/decode_plan.h"

#include <algorithm>
#include <cmath>

namespace ikv {

void DecodePlan::start(const AttentionSpec& spec) {
  group_ = spec.num_heads / spec.num_kv_heads;
  num_entries_ = 0;
  runs_.clear();
  entries_.clear();
}

void DecodePlan::finish(const AttentionSpec& spec, const DecodeJob& job) {
  const size_t parts = runs_.size() * static_cast<size_t>(group_);
  maxima_.resize(parts);
  sums_.resize(parts);
  weights_.resize(parts);
  values_.resize(parts * static_cast<size_t>(spec.head_dim));
  if (job.page_mass != nullptr) exps_.resize(parts * kRunEntries);
}

void DecodePlan::plan(const AttentionSpec& spec, const DecodeJob& job) {
  if (!job.all_entries) {
    plan_entries(spec, job, job.entries);
    return;
  }
  start(spec);
  EntrySource run{job.pages, job.position, nullptr, 0, 0, 0, 0};
  for (uint32_t p = 0; p < job.pages.size(); ++p) {
    RowRange range = readable_rows(spec, job.position, job.pages[p]);
    while (!range.empty()) {
      if (run.count == 0) {
        run.page = p;
        run.row = range.first;
      }
      const int taken = std::min(range.last - range.first, kRunEntries - run.count);
      run.count += taken;
      range.first += taken;
      num_entries_ += taken;
      if (run.count < kRunEntries) continue;
      runs_.push_back(run);
      run.count = 0;
    }
  }
  if (run.count > 0) runs_.push_back(run);
  finish(spec, job);
}

void DecodePlan::plan_entries(const AttentionSpec& spec, const DecodeJob& job,
                              std::span<const PageEntry> entries) {
  start(spec);
  const uint32_t block_tokens = list_block_tokens(job.pages);
  if (block_tokens > 0) {
    EntrySource all{job.pages, job.position, entries.data(), block_tokens, 0, 0, 0};
    // Entries past the list's end are ours to ignore: a caller's bitmap may cover a whole block.
    while (!entries.empty() && entries.back() / block_tokens >= job.pages.size()) {
      entries = entries.first(entries.size() - 1);
    }
    all.count = static_cast<int>(entries.size());
    entries_.resize(entries.size());
    size_t n = 0;
    for_each_stretch(spec, all, [&](const Stretch& stretch) {
      const KvPageView& page = job.pages[stretch.page];
      const RowRange range = readable_rows(spec, job.position, page);
      if (range.empty()) return;
      prefetch_scales(page, stretch);
      // Entries ascend: when the ends can be read, all can.
      if (static_cast<int>(stretch.row(0)) >= range.first &&
          static_cast<int>(stretch.row(stretch.count - 1)) < range.last) {
        std::copy_n(stretch.entries, stretch.count, entries_.data() + n);
        n += static_cast<size_t>(stretch.count);
        return;
      }
      for (int i = 0; i < stretch.count; ++i) {
        const int row = static_cast<int>(stretch.row(i));
        if (row >= range.first && row < range.last) entries_[n++] = stretch.entries[i];
      }
    });
    entries_.resize(n);
    num_entries_ = static_cast<int>(n);
    for (size_t begin = 0; begin < n; begin += kRunEntries) {
      all.entries = entries_.data() + begin;
      all.count = static_cast<int>(std::min<size_t>(kRunEntries, n - begin));
      runs_.push_back(all);
    }
  }
  finish(spec, job);
}

void DecodePlan::prepare_queries(const AttentionSpec& spec, const DecodeJob& job) {
  queries_.prepare(spec, job.pages, job.q, group_, static_cast<size_t>(spec.head_dim));
}

void DecodePlan::score_run(const AttentionSpec& spec, size_t run, const RunRows& keys,
                           const RowStream* next, float* logits, size_t stride) const {
  const AttentionKernels& kernels = attention_kernels(cpu_isa());
  for (int s = 0; s < keys.num_segments; ++s) {
    const RowSegment& segment = keys.segments[s];
    const KeyRows rows{keys.rows + segment.begin,
                       keys.scales + segment.begin,
                       segment.page_scales,
                       segment.count,
                       segment.begin,
                       next};
    kernels.score[static_cast<size_t>(segment.format)](
        queries_.views()[static_cast<size_t>(segment.query)], rows, logits + segment.begin, stride);
  }
  for (int g = 0; g < group_; ++g) {
    kernels.finish_logits(logits + static_cast<size_t>(g) * stride, runs_[run].count,
                          spec.logit_softcap);
  }
}

void DecodePlan::attend_run(const AttentionSpec& spec, const DecodeJob& job, size_t run,
                            const RunRows& rows, float* logits, size_t stride) {
  const AttentionKernels& kernels = attention_kernels(cpu_isa());
  const auto group = static_cast<size_t>(group_);
  const int count = runs_[run].count;
  for (size_t g = 0; g < group; ++g) {
    float* row = logits + g * stride;
    kernels.softmax(row, count, &maxima_[run * group + g], &sums_[run * group + g]);
    if (job.page_mass != nullptr) {
      std::copy_n(row, count, exps_.data() + (run * group + g) * kRunEntries);
    }
  }
  const auto width = group * static_cast<size_t>(spec.head_dim);
  float* out = values_.data() + run * width;
  std::fill(out, out + width, 0.0f);
  for (int s = 0; s < rows.num_segments; ++s) {
    const RowSegment& segment = rows.segments[s];
    const ValueRows values{rows.rows + segment.begin, rows.scales + segment.begin,
                           rows.params + segment.begin, segment.count};
    kernels.values[static_cast<size_t>(segment.format)](values, logits + segment.begin, stride,
                                                        group_, spec.head_dim, out);
  }
}

size_t DecodePlan::size_bytes() const {
  return vector_bytes(runs_) + vector_bytes(entries_) + queries_.size_bytes() +
         vector_bytes(maxima_) + vector_bytes(sums_) + vector_bytes(values_) + vector_bytes(exps_) +
         vector_bytes(weights_);
}

void DecodePlan::merge(const AttentionSpec& spec, const DecodeJob& job) {
  const auto group = static_cast<size_t>(group_);
  const auto dim = static_cast<size_t>(spec.head_dim);
  std::fill(job.out, job.out + group * dim, 0.0f);
  for (size_t g = 0; g < group; ++g) {
    float most = -INFINITY;
    for (size_t r = 0; r < runs_.size(); ++r) most = std::max(most, maxima_[r * group + g]);
    double total = 0.0;
    for (size_t r = 0; r < runs_.size(); ++r) {
      const float weight = std::exp(maxima_[r * group + g] - most);
      weights_[r * group + g] = weight;
      total += static_cast<double>(weight) * static_cast<double>(sums_[r * group + g]);
    }
    float* out = job.out + g * dim;
    for (size_t r = 0; r < runs_.size(); ++r) {
      const float weight = static_cast<float>(static_cast<double>(weights_[r * group + g]) / total);
      weights_[r * group + g] = weight;
      const float* values = values_.data() + (r * group + g) * dim;
      for (size_t d = 0; d < dim; ++d) out[d] += weight * values[d];
    }
  }
  if (job.page_mass != nullptr) write_mass(spec, job, weights_.data());
}

void DecodePlan::write_mass(const AttentionSpec& spec, const DecodeJob& job, const float* weights) {
  std::fill(job.page_mass, job.page_mass + job.pages.size(), 0.0f);
  const auto group = static_cast<size_t>(group_);
  for (size_t r = 0; r < runs_.size(); ++r) {
    int done = 0;
    for_each_stretch(spec, runs_[r], [&](const Stretch& stretch) {
      for (size_t g = 0; g < group; ++g) {
        const float* exps = exps_.data() + (r * group + g) * kRunEntries + done;
        float sum = 0.0f;
        for (int i = 0; i < stretch.count; ++i) sum += exps[i];
        job.page_mass[stretch.page] += sum * weights[r * group + g];
      }
      done += stretch.count;
    });
  }
}

}  // namespace ikv
