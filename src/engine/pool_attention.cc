#include "engine/pool_attention.h"

#include <algorithm>

#include "base/check.h"
#include "kv/page_digest.h"
#include "quant/kv_codec.h"

namespace ikv {

namespace {

// Every so many steps, on every so many layers, the mass that level 2 leaves out is measured.
constexpr LogicalPos kProbeSteps = 64;
constexpr int kProbeLayers = 4;

}  // namespace

/// One sequence of the step.
struct PoolAttention::Item {
  KvStep step;
  bool decode = false;
  const AttendPolicy* attend = nullptr;
  AttendStats* stats = nullptr;
  QueryCollector* queries = nullptr;
  AttendCounter* counter = nullptr;
  LogicalPos mass_from = 0;  ///< rows from here on report their mass by page
  size_t first_row = 0;      ///< of the batch
  PageViewCache::Pages* pages = nullptr;
  size_t first_part = 0;
  size_t num_parts = 0;
};

/// The item's rows within one block.
struct PoolAttention::Part {
  size_t item = 0;
  int32_t block_index = 0;
  LogicalPos begin = 0;  ///< position of its first row
  LogicalPos end = 0;
  size_t first_row = 0;         ///< of the batch
  BlockId unsealed = kNoBlock;  ///< block whose pages take the rows; kNoBlock: scratch
  size_t scratch = 0;           ///< page of the scratch, in units of all KV heads
  BlockId sealed = kNoBlock;    ///< block to encode when the rows fill it
  int num_rows() const { return static_cast<int>(end - begin); }
};

PoolAttention::PoolAttention(KvPool& pool, const KeyCodebooks* codebooks, ThreadPool& threads)
    : pool_(pool),
      codebooks_(codebooks),
      threads_(threads),
      views_(pool),
      keys_(static_cast<size_t>(threads.num_threads())),
      selector_(threads),
      scratch_(std::make_unique<AttentionScratch>()) {
  for (int layer = 0; layer < pool.num_layers(); ++layer) {
    unsealed_stride_ = std::max<size_t>(unsealed_stride_, pool.tail_layout(layer).page_bytes);
  }
}

PoolAttention::~PoolAttention() = default;

namespace {
size_t max_kv_heads(const KvPool& pool) {
  int heads = 0;
  for (int layer = 0; layer < pool.num_layers(); ++layer) {
    heads = std::max(heads, pool.num_kv_heads(layer));
  }
  return static_cast<size_t>(heads);
}
}  // namespace

size_t PoolAttention::scratch_bytes(const KvPool& pool, int num_rows) {
  size_t page_bytes = 0;
  for (int layer = 0; layer < pool.num_layers(); ++layer) {
    page_bytes = std::max<size_t>(page_bytes, pool.tail_layout(layer).page_bytes);
  }
  const auto blocks = static_cast<size_t>(num_rows / pool.block_tokens()) + 1;
  return blocks * max_kv_heads(pool) * page_bytes;
}

Status PoolAttention::begin_step(std::span<const StepRows> rows) {
  items_.clear();
  parts_.clear();
  positions_.clear();
  page_mass_.assign(rows.size(), {});
  for (const StepRows& sequence : rows) {
    Item item;
    item.step = pool_.step(sequence.sequence);
    item.decode = sequence.decode;
    item.attend = codebooks_ != nullptr ? sequence.attend : nullptr;
    item.stats = sequence.stats;
    item.queries = sequence.queries;
    item.counter = sequence.counter;
    item.mass_from = item.step.new_length - sequence.num_mass_rows;
    item.first_row = positions_.size();
    const auto committed = pool_.blocks(sequence.sequence);
    const size_t num_sealed = static_cast<size_t>(item.step.old_length / pool_.block_tokens());
    item.pages = &views_.update(sequence.sequence, committed.first(num_sealed), item.step.sealed);
    for (LogicalPos p = item.step.old_length; p < item.step.new_length; ++p) {
      positions_.push_back(p);
    }
    add_parts(item);
    items_.push_back(item);
  }
  rope_.begin_step(positions_);
  size_t num_scratch = 0;
  for (Part& part : parts_) {
    if (part.unsealed == kNoBlock) part.scratch = num_scratch++;
  }
  const size_t bytes = num_scratch * max_kv_heads(pool_) * unsealed_stride_;
  if (bytes > unsealed_.size_bytes()) {
    IKV_ASSIGN_OR_RETURN(unsealed_, AlignedBuffer::allocate(bytes));
  }
  return {};
}

void PoolAttention::add_parts(Item& item) {
  const int block_tokens = pool_.block_tokens();
  const KvStep& step = item.step;
  item.first_part = parts_.size();
  const int32_t first_block = step.old_length / block_tokens;
  for (LogicalPos begin = step.old_length; begin < step.new_length;) {
    Part part;
    part.item = items_.size();
    part.block_index = begin / block_tokens;
    part.begin = begin;
    part.end = std::min(step.new_length, (part.block_index + 1) * block_tokens);
    part.first_row = item.first_row + static_cast<size_t>(begin - step.old_length);
    const auto nth = static_cast<size_t>(part.block_index - first_block);
    if (nth < step.sealed.size()) part.sealed = step.sealed[nth];
    if (nth == 0 && step.tail != kNoBlock) {
      part.unsealed = step.tail;
    } else if (part.sealed == kNoBlock) {
      part.unsealed = step.next_tail;
    }
    begin = part.end;
    parts_.push_back(part);
  }
  item.num_parts = parts_.size() - item.first_part;
}

std::byte* PoolAttention::unsealed_page(const Part& part, int layer, int kv_head) {
  if (part.unsealed != kNoBlock) return pool_.page_data(part.unsealed, layer, kv_head);
  const size_t index = part.scratch * max_kv_heads(pool_) + static_cast<size_t>(kv_head);
  return unsealed_.data() + index * unsealed_stride_;
}

KvPageView PoolAttention::own_view(const Part& part, int layer, int kv_head, LogicalPos end) {
  KvPageView view;
  view.data = unsealed_page(part, layer, kv_head);
  view.layout = &pool_.tail_layout(layer);
  view.begin = part.block_index * pool_.block_tokens();
  view.num_tokens = end - view.begin;
  return view;
}

Status PoolAttention::attend(int layer, const AttentionSpec& spec, float* q, float* k,
                             const float* v, float* out) {
  collect_queries(layer, spec, q);
  rope_.prepare(spec.rope);
  const auto kv_heads = static_cast<size_t>(spec.num_kv_heads);
  threads_.parallel_for(parts_.size() * kv_heads, [&](size_t task, int thread) {
    const Part& part = parts_[task / kv_heads];
    const int kv_head = static_cast<int>(task % kv_heads);
    write_part(layer, spec, part, kv_head, q, k, v);
    if (part.sealed == kNoBlock) return;
    seal_part(layer, part, kv_head);
    std::byte* digest = pool_.page_digest(part.sealed, layer, kv_head);
    if (digest == nullptr) return;
    std::vector<float>& keys = keys_[static_cast<size_t>(thread)];
    const auto head_dim = static_cast<size_t>(spec.head_dim);
    keys.resize(static_cast<size_t>(pool_.block_tokens()) * head_dim);
    read_kv_rows(pool_.tail_layout(layer), unsealed_page(part, layer, kv_head), 0,
                 pool_.block_tokens(), keys.data(), nullptr, head_dim);
    make_page_digest(keys.data(), head_dim, pool_.block_tokens(), spec.head_dim, digest);
  });
  attend_prefill_rows(layer, spec, q, out);
  attend_decode_rows(layer, spec, q, out);
  return {};
}

void PoolAttention::collect_queries(int layer, const AttentionSpec& spec, const float* q) const {
  const size_t stride = static_cast<size_t>(spec.num_heads) * static_cast<size_t>(spec.head_dim);
  for (const Item& item : items_) {
    if (item.queries == nullptr) continue;
    const auto rows = static_cast<size_t>(item.step.new_length - item.step.old_length);
    for (size_t row = rows - std::min(rows, item.queries->max_rows()); row < rows; ++row) {
      item.queries->add(static_cast<size_t>(layer), q + (item.first_row + row) * stride);
    }
  }
}

void PoolAttention::write_part(int layer, const AttentionSpec& spec, const Part& part, int kv_head,
                               float* q, float* k, const float* v) {
  const auto head_dim = static_cast<size_t>(spec.head_dim);
  const int group = spec.num_heads / spec.num_kv_heads;
  const size_t q_stride = static_cast<size_t>(spec.num_heads) * head_dim;
  const size_t kv_stride = static_cast<size_t>(spec.num_kv_heads) * head_dim;
  const size_t q_offset = static_cast<size_t>(kv_head * group) * head_dim;
  const size_t kv_offset = static_cast<size_t>(kv_head) * head_dim;
  for (int i = 0; i < part.num_rows(); ++i) {
    const size_t row = part.first_row + static_cast<size_t>(i);
    rope_.rotate(spec.rope, row, group, spec.head_dim, q + row * q_stride + q_offset);
    rope_.rotate(spec.rope, row, 1, spec.head_dim, k + row * kv_stride + kv_offset);
  }
  const float* keys = k + part.first_row * kv_stride + kv_offset;
  const float* values = v + part.first_row * kv_stride + kv_offset;
  const int first = part.begin % pool_.block_tokens();
  write_kv_rows(pool_.tail_layout(layer), unsealed_page(part, layer, kv_head), first,
                part.num_rows(), keys, values, kv_stride);
  write_codes(layer, spec, part, kv_head, keys);
}

void PoolAttention::write_codes(int layer, const AttentionSpec& spec, const Part& part, int kv_head,
                                const float* keys) {
  if (codebooks_ == nullptr) return;
  const BlockId block = part.sealed != kNoBlock ? part.sealed : part.unsealed;
  std::byte* codes = pool_.page_codes(block, layer, kv_head);
  if (codes == nullptr) return;
  const size_t stride = static_cast<size_t>(spec.num_kv_heads) * static_cast<size_t>(spec.head_dim);
  encode_keys(codebooks_->head(layer, kv_head), spec.head_dim, keys, stride, part.num_rows(),
              part.begin % pool_.block_tokens(), codes);
}

void PoolAttention::seal_part(int layer, const Part& part, int kv_head) {
  convert_kv_page(pool_.tail_layout(layer), unsealed_page(part, layer, kv_head),
                  pool_.block_tokens(), pool_.sealed_layout(layer),
                  pool_.page_data(part.sealed, layer, kv_head));
}

void PoolAttention::attend_prefill_rows(int layer, const AttentionSpec& spec, const float* q,
                                        float* out) {
  prefill_jobs_.clear();
  mass_jobs_.clear();
  const auto head_dim = static_cast<size_t>(spec.head_dim);
  const size_t q_stride = static_cast<size_t>(spec.num_heads) * head_dim;
  const auto group = static_cast<size_t>(spec.num_heads / spec.num_kv_heads);
  // Late blocks read most: first, so that the threads end together.
  for (size_t i = parts_.size(); i-- > 0;) {
    const Part& part = parts_[i];
    const Item& item = items_[part.item];
    if (item.decode) continue;
    for (int head = 0; head < spec.num_kv_heads; ++head) {
      const auto page = static_cast<size_t>(pool_.page_index(layer, head));
      PrefillJob job;
      const size_t offset =
          part.first_row * q_stride + static_cast<size_t>(head) * group * head_dim;
      job.q = q + offset;
      job.q_stride = q_stride;
      job.out = out + offset;
      job.out_stride = q_stride;
      job.num_rows = part.num_rows();
      job.first_position = part.begin;
      job.pages = std::span<const KvPageView>(item.pages->views[page])
                      .first(static_cast<size_t>(part.block_index));
      job.own = own_view(part, layer, head, part.end);
      if (part.end > item.mass_from) {
        MassJob mass;
        mass.job = prefill_jobs_.size();
        mass.item = part.item;
        mass.page = page;
        mass.mass.resize(job.pages.size() + 1);
        mass_jobs_.push_back(std::move(mass));
        job.mass_first_row = std::max(0, item.mass_from - part.begin);
      }
      prefill_jobs_.push_back(job);
    }
  }
  if (prefill_jobs_.empty()) return;
  for (MassJob& mass : mass_jobs_) prefill_jobs_[mass.job].page_mass = mass.mass.data();
  attend_prefill(spec, prefill_jobs_, *scratch_, threads_);
  add_page_mass();
}

void PoolAttention::add_page_mass() {
  for (const MassJob& job : mass_jobs_) {
    auto& pages = page_mass_[job.item];
    pages.resize(static_cast<size_t>(pool_.pages_per_block()));
    std::vector<float>& sums = pages[job.page];
    if (sums.size() < job.mass.size()) sums.resize(job.mass.size());
    for (size_t i = 0; i < job.mass.size(); ++i) sums[i] += job.mass[i];
  }
}

void PoolAttention::attend_decode_rows(int layer, const AttentionSpec& spec, const float* q,
                                       float* out) {
  size_t most_parts = 0;
  for (const Item& item : items_) {
    if (item.decode) most_parts = std::max(most_parts, item.num_parts);
  }
  // One pass but for speculated rows that cross a block's border.
  for (size_t nth = 0; nth < most_parts; ++nth) attend_decode_parts(layer, spec, nth, q, out);
}

void PoolAttention::attend_decode_parts(int layer, const AttentionSpec& spec, size_t nth,
                                        const float* q, float* out) {
  decode_jobs_.clear();
  select_jobs_.clear();
  select_stats_.clear();
  loans_.clear();
  for (Item& item : items_) {
    if (!item.decode || nth >= item.num_parts) continue;
    const Part& part = parts_[item.first_part + nth];
    for (int head = 0; head < spec.num_kv_heads; ++head) {
      const std::byte* codes = part.sealed == kNoBlock
                                   ? std::as_const(pool_).page_codes(part.unsealed, layer, head)
                                   : nullptr;
      lend(*item.pages, static_cast<size_t>(pool_.page_index(layer, head)),
           own_view(part, layer, head, part.end), codes);
    }
  }
  for (const Item& item : items_) {
    if (!item.decode || nth >= item.num_parts) continue;
    const Part& part = parts_[item.first_part + nth];
    for (int head = 0; head < spec.num_kv_heads; ++head) {
      add_decode_jobs(layer, spec, item, part, head, q, out);
    }
  }
  if (!decode_jobs_.empty()) attend_decode(spec, decode_jobs_, *scratch_, threads_);
  if (!select_jobs_.empty()) selector_.attend(spec, select_jobs_);
  for (size_t i = 0; i < select_jobs_.size(); ++i) {
    if (select_stats_[i] != nullptr) *select_stats_[i] += select_jobs_[i].stats;
  }
  take_back_loans();
}

void PoolAttention::add_decode_jobs(int layer, const AttentionSpec& spec, const Item& item,
                                    const Part& part, int kv_head, const float* q, float* out) {
  const auto head_dim = static_cast<size_t>(spec.head_dim);
  const auto group = static_cast<size_t>(spec.num_heads / spec.num_kv_heads);
  const size_t q_stride = static_cast<size_t>(spec.num_heads) * head_dim;
  const auto page = static_cast<size_t>(pool_.page_index(layer, kv_head));
  const auto num_pages = static_cast<size_t>(part.block_index) + 1;
  for (int i = 0; i < part.num_rows(); ++i) {
    DecodeJob job;
    const size_t offset = (part.first_row + static_cast<size_t>(i)) * q_stride +
                          static_cast<size_t>(kv_head) * group * head_dim;
    job.q = q + offset;
    job.out = out + offset;
    job.position = part.begin + i;
    job.pages = std::span<const KvPageView>(item.pages->views[page]).first(num_pages);
    if (item.attend == nullptr || !DecodeSelector::selects(*item.attend, spec, job.position)) {
      decode_jobs_.push_back(job);
      if (item.counter != nullptr) {
        const LogicalPos begin = DecodeSelector::first_visible(spec, job.position);
        item.counter->count_all(begin, job.position + 1);
      }
      continue;
    }
    SelectJob select;
    select.decode = job;
    select.codes = std::span<const std::byte* const>(item.pages->codes[page]).first(num_pages);
    select.codebook = codebooks_->head(layer, kv_head);
    select.policy = item.attend;
    select.counter = item.counter;
    select.seed = (static_cast<uint64_t>(job.position) << 20) + page;
    select.probe = job.position % kProbeSteps == 0 && layer % kProbeLayers == 0;
    select_jobs_.push_back(select);
    select_stats_.push_back(item.stats);
  }
}

// The own block's unsealed page takes its place at the end of the list for the time of a call,
// instead of copying the list; a sealed page of the same block steps aside.
void PoolAttention::lend(PageViewCache::Pages& pages, size_t page, const KvPageView& own,
                         const std::byte* own_codes) {
  std::vector<KvPageView>& views = pages.views[page];
  Loan loan;
  loan.views = &views;
  loan.index = static_cast<size_t>(own.begin / pool_.block_tokens());
  loan.appended = loan.index == views.size();
  if (loan.appended) {
    views.push_back(own);
  } else {
    loan.aside = views[loan.index];
    views[loan.index] = own;
  }
  if (own_codes != nullptr && !pages.codes.empty()) {
    loan.codes = &pages.codes[page];
    loan.codes->push_back(own_codes);
  }
  loans_.push_back(loan);
}

void PoolAttention::take_back_loans() {
  for (const Loan& loan : loans_) {
    if (loan.appended) {
      loan.views->pop_back();
    } else {
      (*loan.views)[loan.index] = loan.aside;
    }
    if (loan.codes != nullptr) loan.codes->pop_back();
  }
}

}  // namespace ikv
