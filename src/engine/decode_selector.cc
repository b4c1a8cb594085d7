#include "engine/decode_selector.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "pruning/group_scores.h"
#include "pruning/select_tokens.h"

namespace ikv {
namespace {

constexpr uint16_t kForced = 65535;

// First position that a windowed layer can see, rounded down to its page.
size_t first_visible_page(const AttentionSpec& spec, LogicalPos position, int block_tokens) {
  if (spec.window_tokens <= 0 || position < spec.window_tokens) return 0;
  return static_cast<size_t>((position - spec.window_tokens + 1) / block_tokens);
}

LogicalPos num_visible(const AttentionSpec& spec, LogicalPos position) {
  const LogicalPos all = position + 1;
  return spec.window_tokens > 0 ? std::min(all, static_cast<LogicalPos>(spec.window_tokens)) : all;
}

uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

size_t row_bytes(KvFormat format, int head_dim) {
  const auto dim = static_cast<size_t>(head_dim);
  switch (format) {
    case KvFormat::kF32:
      return 4 * dim;
    case KvFormat::kF16:
    case KvFormat::kBF16:
      return 2 * dim;
    case KvFormat::kInt8:
      return dim + 2;
    case KvFormat::kInt4:
      return dim / 2 + dim / 8;
  }
  return 0;
}

}  // namespace

struct DecodeSelector::Scratch {
  KeyScanTables tables;
  std::vector<float> queries;  // scaled
  std::vector<float> logits;   // [group][entries]
  std::vector<float> lse;      // [group]
  std::vector<uint16_t> scores;
  std::vector<uint32_t> candidates;  // entries, ascending
  std::vector<uint32_t> chosen;      // indices into candidates
  std::vector<PageEntry> entries;
  std::vector<float> chosen_logits;
};

DecodeSelector::DecodeSelector(ThreadPool& threads)
    : threads_(threads), scratch_(static_cast<size_t>(threads.num_threads())) {}

DecodeSelector::~DecodeSelector() = default;

bool DecodeSelector::selects(const AttendPolicy& policy, const AttentionSpec& spec,
                             LogicalPos position) {
  if (policy.budget.force_selection) return true;
  if (policy.budget.kind == AttendBudget::Kind::kAll) return false;
  const LogicalPos visible = num_visible(spec, position);
  return attend_tokens(policy.budget, visible) < visible;
}

LogicalPos DecodeSelector::first_visible(const AttentionSpec& spec, LogicalPos position) {
  return position + 1 - num_visible(spec, position);
}

void DecodeSelector::attend(const AttentionSpec& spec, std::span<SelectJob> jobs) {
  threads_.parallel_for(jobs.size(), [&](size_t i, int thread) {
    run(spec, jobs[i], scratch_[static_cast<size_t>(thread)]);
  });
}

void DecodeSelector::run(const AttentionSpec& spec, SelectJob& job, Scratch& scratch) const {
  const int block_tokens = job.decode.pages.front().layout->block_tokens;
  const size_t first_page = first_visible_page(spec, job.decode.position, block_tokens);
  const auto first = first_page * static_cast<size_t>(block_tokens);
  const size_t end = static_cast<size_t>(job.decode.position) + 1;
  const size_t size = end - first;
  const LogicalPos visible = num_visible(spec, job.decode.position);
  const auto budget = static_cast<size_t>(attend_tokens(job.policy->budget, visible));
  SelectJob view = job;  // of what a windowed layer can see; entries count from its first page
  view.decode.pages = job.decode.pages.subspan(first_page);
  view.codes = job.codes.subspan(first_page);

  score_all(spec, view, size, scratch);
  const auto sink = std::min(size, static_cast<size_t>(job.policy->budget.sink_tokens));
  const auto recent = std::min(size, static_cast<size_t>(job.policy->budget.recent_tokens));
  if (first == 0) std::fill_n(scratch.scores.begin(), sink, kForced);
  std::fill(scratch.scores.end() - static_cast<std::ptrdiff_t>(recent), scratch.scores.end(),
            kForced);
  const bool exact = job.policy->scorer == TokenScorer::kExact;
  const double wanted =
      exact ? static_cast<double>(size)
            : std::ceil(static_cast<double>(job.policy->candidates) * static_cast<double>(budget));
  const bool rerank = job.policy->scorer == TokenScorer::kCode && job.policy->candidates > 1;
  const size_t num_candidates =
      rerank || exact ? std::min(size, std::max(budget, static_cast<size_t>(wanted))) : budget;
  scratch.candidates.clear();
  select_top_k(std::span(scratch.scores).first(size), num_candidates, scratch.candidates);
  view.stats = {};
  rank_candidates(spec, view, std::min(budget, size), scratch);
  if (job.counter != nullptr) {
    job.counter->count_chosen(static_cast<LogicalPos>(first), static_cast<LogicalPos>(end),
                              scratch.entries);
  }
  if (job.probe) {
    view.stats.probes = 1;
    view.stats.missed_mass = missed_mass(spec, view, size, scratch.entries, scratch);
  }
  job.stats = view.stats;
  job.stats.selections = 1;
  job.stats.cached = static_cast<uint64_t>(visible);
  if (job.policy->scorer == TokenScorer::kCode) {
    job.stats.scanned = size;
    job.stats.bytes_read += size * key_code_bytes_per_token(spec.head_dim);
  }
}

void DecodeSelector::score_all(const AttentionSpec& spec, const SelectJob& job, size_t size,
                               Scratch& scratch) const {
  scratch.scores.resize(size);
  switch (job.policy->scorer) {
    case TokenScorer::kExact:
      return;  // all are candidates
    case TokenScorer::kRecent:
      for (size_t i = 0; i < size; ++i) {
        scratch.scores[i] = static_cast<uint16_t>(65534 - std::min<size_t>(size - 1 - i, 65534));
      }
      return;
    case TokenScorer::kRandom:
      for (size_t i = 0; i < size; ++i) {
        scratch.scores[i] = static_cast<uint16_t>(mix(job.seed + i) % 65535);
      }
      return;
    case TokenScorer::kCode:
      break;
  }
  const auto head_dim = static_cast<size_t>(spec.head_dim);
  const int group = spec.num_heads / spec.num_kv_heads;
  scratch.queries.resize(static_cast<size_t>(group) * head_dim);
  for (size_t i = 0; i < scratch.queries.size(); ++i) {
    scratch.queries[i] = job.decode.q[i] * spec.scale;
  }
  build_scan_tables(job.codebook, spec.head_dim, scratch.queries.data(), head_dim, group,
                    scratch.tables);
  scratch.logits.resize(static_cast<size_t>(group) * size);
  scratch.lse.resize(static_cast<size_t>(group));
  scan_key_code_pages(scratch.tables, job.codes, job.decode.pages.front().layout->block_tokens,
                      static_cast<int>(size), scratch.logits.data(), size);
  group_log_mass(scratch.logits.data(), size, group, size, scratch.scores.data(),
                 scratch.lse.data());
}

// Mean over the group of the softmax mass outside `read`.
double DecodeSelector::missed_mass(const AttentionSpec& spec, const SelectJob& job, size_t size,
                                   std::span<const PageEntry> read, Scratch& scratch) const {
  const auto group = static_cast<size_t>(spec.num_heads / spec.num_kv_heads);
  std::vector<PageEntry> all(size);
  std::iota(all.begin(), all.end(), 0u);
  scratch.logits.resize(group * size);
  score_entries(spec, job.decode, all, scratch.logits.data(), size);
  double missed = 0;
  for (size_t g = 0; g < group; ++g) {
    const std::span<const float> logits = std::span(scratch.logits).subspan(g * size, size);
    const float highest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float x : logits) sum += std::exp(x - highest);
    double kept = 0;
    for (const PageEntry entry : read) kept += std::exp(logits[entry] - highest);
    missed += sum > 0 ? 1.0 - kept / sum : 0.0;
  }
  return std::max(0.0, missed / static_cast<double>(group));
}

void DecodeSelector::rank_candidates(const AttentionSpec& spec, SelectJob& job, size_t budget,
                                     Scratch& scratch) const {
  const auto group = static_cast<size_t>(spec.num_heads / spec.num_kv_heads);
  const KvPageLayout& layout = *job.decode.pages.front().layout;
  const size_t count = scratch.candidates.size();
  scratch.logits.resize(group * count);
  score_entries(spec, job.decode, scratch.candidates, scratch.logits.data(), count);
  job.stats.ranked = count;
  job.stats.bytes_read += count * row_bytes(layout.formats.k, spec.head_dim);
  if (budget >= count) {
    job.stats.attended = count;
    job.stats.bytes_read += count * row_bytes(layout.formats.v, spec.head_dim);
    scratch.entries.assign(scratch.candidates.begin(), scratch.candidates.end());
    attend_scored(spec, job.decode, scratch.candidates, scratch.logits.data(), count);
    return;
  }
  scratch.lse.resize(group);
  scratch.scores.resize(count);
  group_log_mass(scratch.logits.data(), count, static_cast<int>(group), count,
                 scratch.scores.data(), scratch.lse.data());
  if (job.policy->budget.kind == AttendBudget::Kind::kMass) {
    // Forced tokens come on top, since they may hold little.
    const auto& limits = job.policy->budget;
    const size_t needed = tokens_for_mass(scratch.scores, limits.mass) +
                          static_cast<size_t>(limits.sink_tokens + limits.recent_tokens);
    budget = std::clamp(needed, std::min(budget, static_cast<size_t>(limits.min_tokens)), budget);
  }
  job.stats.attended = budget;
  job.stats.bytes_read += budget * row_bytes(layout.formats.v, spec.head_dim);
  const auto sink = static_cast<uint32_t>(job.policy->budget.sink_tokens);
  const auto end = static_cast<uint32_t>(job.decode.position + 1 - job.decode.pages.front().begin);
  const auto recent = end - std::min(end, static_cast<uint32_t>(job.policy->budget.recent_tokens));
  for (size_t i = 0; i < count; ++i) {
    const uint32_t entry = scratch.candidates[i];
    if (entry >= recent || (entry < sink && job.decode.pages.front().begin == 0)) {
      scratch.scores[i] = kForced;
    }
  }
  scratch.chosen.clear();
  select_top_k(scratch.scores, budget, scratch.chosen);
  scratch.entries.resize(budget);
  scratch.chosen_logits.resize(group * budget);
  for (size_t i = 0; i < budget; ++i) scratch.entries[i] = scratch.candidates[scratch.chosen[i]];
  for (size_t g = 0; g < group; ++g) {
    const float* from = scratch.logits.data() + g * count;
    float* to = scratch.chosen_logits.data() + g * budget;
    for (size_t i = 0; i < budget; ++i) to[i] = from[scratch.chosen[i]];
  }
  attend_scored(spec, job.decode, scratch.entries, scratch.chosen_logits.data(), budget);
}

}  // namespace ikv
