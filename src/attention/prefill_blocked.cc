#include "attention/prefill_blocked.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/kv_codec_kernels.h"

namespace ikv {

namespace {
constexpr size_t kMaxHeadDim = 512;
constexpr float kLowest = -3.402823466e+38f;

const uint8_t* at(const KvPageView& page, uint32_t offset) {
  return reinterpret_cast<const uint8_t*>(page.data) + offset;
}

float half_scale(const uint8_t* half) {
  // Through the codec's table of one row would cost more than these few operations.
  uint16_t h;
  std::memcpy(&h, half, 2);
  const uint32_t bits = static_cast<uint32_t>(h & 0x7FFFu) << 13;
  float x;
  std::memcpy(&x, &bits, 4);
  return x * 0x1p112f;
}
}  // namespace

/// Packed and decoded rows. Left uninitialised: only what a head size needs is ever touched.
struct BlockedPrefill::Buffers {
  alignas(64) float keys[kSegmentKeys * kMaxHeadDim];
  alignas(64) float values[kSegmentKeys * kMaxHeadDim + 64];
  alignas(64) float rows[kSegmentKeys * kMaxHeadDim];  ///< decoded keys
  alignas(64) float key_scales[kSegmentKeys];
  alignas(64) float value_scales[kSegmentKeys];
  TileWeights weights;
};

void BlockedPrefill::DeleteBuffers::operator()(Buffers* buffers) const {
  delete buffers;
}

size_t BlockedPrefill::buffer_bytes() {
  return sizeof(Buffers);
}

size_t BlockedPrefill::size_bytes() const {
  return (buffers_ != nullptr ? sizeof(Buffers) : 0) + vector_bytes(pages_) + vector_bytes(q_) +
         queries_.size_bytes() + vector_bytes(spans_) + vector_bytes(ranges_) + vector_bytes(max_) +
         vector_bytes(sum_) + vector_bytes(out_) + vector_bytes(mass_) + vector_bytes(mass_max_);
}

void BlockedPrefill::run(const AttentionSpec& spec, const PrefillJob& job,
                         const PrefillKernels& kernels) {
  kernels_ = &kernels;
  start(spec, job);
  const uint32_t block_tokens = list_block_tokens(pages_);
  const auto num_pages = static_cast<uint32_t>(pages_.size());
  if (block_tokens > 0) {
    const uint32_t step = std::max<uint32_t>(1, kSegmentKeys / block_tokens);
    for (uint32_t p = 0; p < num_pages; p += step) {
      run_pages(p, std::min(p + step, num_pages));
    }
  }
  finish();
}

void BlockedPrefill::start(const AttentionSpec& spec, const PrefillJob& job) {
  spec_ = &spec;
  job_ = &job;
  group_ = spec.num_heads / spec.num_kv_heads;
  num_queries_ = job.num_rows * group_;
  out_stride_ = (spec.head_dim + 63) / 64 * 64;
  if (buffers_ == nullptr) buffers_.reset(new Buffers);
  pages_.assign(job.pages.begin(), job.pages.end());
  pages_.push_back(job.own);
  const auto dim = static_cast<size_t>(spec.head_dim);
  const size_t row_floats = static_cast<size_t>(group_) * dim;
  q_.resize(static_cast<size_t>(num_queries_) * dim);
  for (int r = 0; r < job.num_rows; ++r) {
    const auto row = static_cast<size_t>(r);
    std::copy_n(job.q + row * job.q_stride, row_floats, q_.data() + row * row_floats);
  }
  queries_.prepare(spec, pages_, q_.data(), num_queries_, dim);
  const auto queries = static_cast<size_t>(num_queries_);
  max_.assign(queries, kLowest);
  sum_.assign(queries, 0.0f);
  out_.assign((queries + 1) * static_cast<size_t>(out_stride_), 0.0f);
  if (job.page_mass != nullptr) {
    const int observed = std::max(0, num_queries_ - job.mass_first_row * group_);
    mass_.assign(static_cast<size_t>(observed) * pages_.size(), 0.0f);
    mass_max_.assign(mass_.size(), kLowest);
  }
}

void BlockedPrefill::run_pages(uint32_t first, uint32_t last) {
  prefetch(last, std::min<uint32_t>(last + (last - first), static_cast<uint32_t>(pages_.size())));
  const auto kind = [this](uint32_t p) {
    const KvFormats& formats = pages_[p].layout->formats;
    return std::pair(
        (formats.k == KvFormat::kInt8 ? 1 : 0) + (formats.v == KvFormat::kInt8 ? 2 : 0),
        pages_[p].position_shift);
  };
  // Pages of one kind and shift make a segment; pages without data are passed over.
  for (uint32_t p = first; p < last;) {
    if (pages_[p].data == nullptr) {
      ++p;
      continue;
    }
    uint32_t end = p + 1;
    while (end < last && (pages_[end].data == nullptr || kind(end) == kind(p))) ++end;
    run_segment(p, end);
    p = end;
  }
}

bool BlockedPrefill::is_read(uint32_t page) const {
  if (page + 1 == pages_.size()) return true;
  return !readable_rows(*spec_, job_->first_position, pages_[page]).empty() ||
         !readable_rows(*spec_, job_->first_position + job_->num_rows - 1, pages_[page]).empty();
}

void BlockedPrefill::run_segment(uint32_t first, uint32_t last) {
  bool read = false;
  for (uint32_t p = first; p < last && !read; ++p) {
    read = pages_[p].data != nullptr && is_read(p);
  }
  if (!read) return;
  gather(first, last);
  if (segment_.count == 0) return;
  find_ranges();
  for (int q = 0; q < num_queries_; q += kTileQueries) run_tile(q);
}

void BlockedPrefill::prefetch(uint32_t first, uint32_t last) const {
  for (uint32_t p = first; p < last; ++p) {
    if (pages_[p].data == nullptr) continue;
    const auto* bytes = at(pages_[p], 0);
    for (uint32_t i = 0; i < pages_[p].layout->page_bytes; i += 64) prefetch_line(bytes + i);
  }
}

void BlockedPrefill::gather(uint32_t first, uint32_t last) {
  Buffers& b = *buffers_;
  const KvFormats& formats = pages_[first].layout->formats;
  segment_ = {};
  segment_.int8_keys = kernels_->pack_keys8 != nullptr && formats.k == KvFormat::kInt8;
  segment_.int8_values = kernels_->pack_values8 != nullptr && formats.v == KvFormat::kInt8;
  shift_index_ = 0;
  while (queries_.shifts()[static_cast<size_t>(shift_index_)] != pages_[first].position_shift) {
    ++shift_index_;
  }
  spans_.clear();
  std::fill(std::begin(b.key_scales), std::end(b.key_scales), 0.0f);
  std::fill(std::begin(b.value_scales), std::end(b.value_scales), 0.0f);
  for (uint32_t p = first; p < last; ++p) {
    const KvPageView& page = pages_[p];
    if (page.data == nullptr || page.num_tokens == 0) continue;
    gather_page(page, segment_.count);
    spans_.push_back({p, segment_.count, page.num_tokens});
    segment_.count += page.num_tokens;
  }
  const int count = segment_.count, dim = spec_->head_dim;
  auto* keys8 = reinterpret_cast<uint8_t*>(b.keys);
  auto* values8 = reinterpret_cast<uint8_t*>(b.values);
  if (segment_.int8_keys) {
    kernels_->pack_keys8(key_rows_, count, dim, keys8);
  } else {
    kernels_->pack_keys(b.rows, count, dim, b.keys);
  }
  if (segment_.int8_values) {
    kernels_->pack_values8(value_rows_, count, dim, values8);
  } else {
    // The last tile of a head size that is no multiple of 64 reads 32 floats more.
    std::fill_n(b.values + static_cast<ptrdiff_t>(count) * dim, 32, 0.0f);
  }
  segment_.keys8 = keys8;
  segment_.keys = b.keys;
  segment_.values8 = values8;
  segment_.values = b.values;
  segment_.key_scales = b.key_scales;
  segment_.value_scales = b.value_scales;
}

void BlockedPrefill::gather_page(const KvPageView& page, int begin) {
  Buffers& b = *buffers_;
  const KvPageLayout& layout = *page.layout;
  const KvCodecKernels& codec = kv_codec_kernels(cpu_isa());
  const int dim = layout.head_dim;
  const ptrdiff_t offset = static_cast<ptrdiff_t>(begin) * dim;
  if (segment_.int8_keys) {
    for (int i = 0; i < page.num_tokens; ++i) {
      key_rows_[begin + i] = at(page, layout.k_offset) + static_cast<ptrdiff_t>(i) * dim;
      b.key_scales[begin + i] = half_scale(at(page, layout.k_scale_offset) + i * 2);
    }
  } else {
    codec.decode({layout.formats.k, true, dim, layout.block_tokens}, at(page, layout.k_offset),
                 at(page, layout.k_scale_offset), 0, page.num_tokens, b.rows + offset,
                 static_cast<size_t>(dim));
  }
  if (segment_.int8_values) {
    for (int i = 0; i < page.num_tokens; ++i) {
      value_rows_[begin + i] = at(page, layout.v_offset) + static_cast<ptrdiff_t>(i) * dim;
      b.value_scales[begin + i] = half_scale(at(page, layout.v_scale_offset) + i * 2);
    }
  } else {
    codec.decode({layout.formats.v, false, dim, layout.block_tokens}, at(page, layout.v_offset),
                 at(page, layout.v_scale_offset), 0, page.num_tokens, b.values + offset,
                 static_cast<size_t>(dim));
  }
}

// Keys that a query at `position` reads: they are consecutive, since positions ascend and the shift
// is one.
RowRange BlockedPrefill::row_range(LogicalPos position) const {
  RowRange all{0, 0};
  for (const PageSpan& span : spans_) {
    const RowRange range = readable_rows(*spec_, position, pages_[span.page]);
    if (range.empty()) continue;
    if (all.empty()) all.first = span.begin + range.first;
    all.last = span.begin + range.last;
  }
  return all;
}

void BlockedPrefill::find_ranges() {
  const auto rows = static_cast<size_t>(job_->num_rows);
  const RowRange whole{0, segment_.count};
  ranges_.assign(rows, whole);
  const auto reads_all = [&](LogicalPos position) {
    const RowRange range = row_range(position);
    return range.first == 0 && range.last == segment_.count;
  };
  // Masks only move forward: what the first and the last row read, all others do.
  if (reads_all(job_->first_position) && reads_all(job_->first_position + job_->num_rows - 1)) {
    return;
  }
  for (size_t r = 0; r < rows; ++r) {
    ranges_[r] = row_range(job_->first_position + static_cast<LogicalPos>(r));
  }
}

void BlockedPrefill::run_tile(int first_query) {
  const int count = std::min(kTileQueries, num_queries_ - first_query);
  const QueryView& view = queries_.views()[static_cast<size_t>(shift_index_)];
  TileQueries tile;
  TileState state;
  float* out[kTileQueries];
  int first[kTileQueries], last[kTileQueries];
  tile.scale = spec_->scale;
  for (int i = 0; i < kTileQueries; ++i) {
    const int query = first_query + std::min(i, count - 1);
    const auto index = static_cast<size_t>(query);
    const ptrdiff_t offset = static_cast<ptrdiff_t>(query) * spec_->head_dim;
    tile.q[i] = view.q + offset;
    if (segment_.int8_keys) {
      tile.high[i] = view.high + offset;
      tile.low[i] = view.low + offset;
      tile.steps[i] = view.steps[query];
      tile.bias[i] = view.bias[query];
    }
    state.max[i] = max_[index];
    state.sum[i] = sum_[index];
    const RowRange range = ranges_[index / static_cast<size_t>(group_)];
    first[i] = range.first;
    last[i] = range.last;
    // Queries that are not there write to a row of their own.
    const int row = i < count ? query : num_queries_;
    out[i] = out_.data() + static_cast<ptrdiff_t>(row) * out_stride_;
  }
  TileWeights& weights = buffers_->weights;
  kernels_->score(tile, segment_, spec_->head_dim, weights);
  kernels_->softmax(segment_, first, last, spec_->logit_softcap, state, weights);
  kernels_->values(segment_, weights, state, spec_->head_dim, out);
  for (int i = 0; i < count; ++i) {
    max_[static_cast<size_t>(first_query + i)] = state.max[i];
    sum_[static_cast<size_t>(first_query + i)] = state.sum[i];
  }
  if (job_->page_mass != nullptr) record_mass(first_query, count, weights);
}

void BlockedPrefill::record_mass(int first_query, int num_queries, const TileWeights& weights) {
  const int first_observed = job_->mass_first_row * group_;
  for (int i = 0; i < num_queries; ++i) {
    const int query = first_query + i;
    if (query < first_observed) continue;
    const size_t row = static_cast<size_t>(query - first_observed) * pages_.size();
    for (const PageSpan& span : spans_) {
      float sum = 0.0f;
      for (int k = span.begin; k < span.begin + span.count; ++k) sum += weights.x[i][k];
      mass_[row + span.page] = sum;
      mass_max_[row + span.page] = max_[static_cast<size_t>(query)];
    }
  }
}

void BlockedPrefill::finish() {
  const auto dim = static_cast<size_t>(spec_->head_dim);
  for (int q = 0; q < num_queries_; ++q) {
    const auto index = static_cast<size_t>(q);
    const size_t row = index / static_cast<size_t>(group_);
    const size_t head = index % static_cast<size_t>(group_);
    const float* sums = out_.data() + index * static_cast<size_t>(out_stride_);
    float* out = job_->out + row * job_->out_stride + head * dim;
    const float inverse = sum_[index] > 0.0f ? 1.0f / sum_[index] : 0.0f;
    for (size_t d = 0; d < dim; ++d) out[d] = sums[d] * inverse;
  }
  if (job_->page_mass != nullptr) write_mass();
}

void BlockedPrefill::write_mass() {
  const size_t num_pages = pages_.size();
  std::fill_n(job_->page_mass, num_pages, 0.0f);
  const int first = job_->mass_first_row * group_;
  for (int q = first; q < num_queries_; ++q) {
    const auto index = static_cast<size_t>(q);
    if (!(sum_[index] > 0.0f)) continue;
    const size_t row = static_cast<size_t>(q - first) * num_pages;
    for (size_t p = 0; p < num_pages; ++p) {
      if (mass_[row + p] == 0.0f) continue;
      job_->page_mass[p] +=
          mass_[row + p] * std::exp(mass_max_[row + p] - max_[index]) / sum_[index];
    }
  }
}

}  // namespace ikv
