#include "attention/attention_scratch.h"

#include <algorithm>

namespace ikv {
namespace {

size_t query_plane_bytes(size_t num_queries, size_t head_dim) {
  // Floats and two planes of bytes; step and bias.
  return num_queries * (head_dim * 6 + 8) + sizeof(QueryView) + sizeof(int32_t);
}

size_t decode_job_bytes(size_t group, size_t head_dim, size_t num_tokens) {
  const size_t runs = num_tokens / kRunEntries + 1;
  const size_t parts = runs * group;
  return runs * (sizeof(EntrySource) + sizeof(AttentionScratch::Impl::Run)) +
         num_tokens * sizeof(PageEntry) + query_plane_bytes(group, head_dim) +
         parts * (3 + head_dim + kRunEntries) * sizeof(float) + sizeof(DecodePlan);
}

size_t prefill_bytes(size_t group, size_t head_dim, size_t num_tokens, size_t block_tokens) {
  const size_t queries = block_tokens * group;
  const size_t pages = num_tokens / block_tokens + 2;
  const size_t out_stride = (head_dim + 63) / 64 * 64;
  return BlockedPrefill::buffer_bytes() + sizeof(BlockedPrefill) + pages * sizeof(KvPageView) +
         query_plane_bytes(queries, head_dim) +
         (queries * (head_dim + 2 + 2 * pages) + (queries + 1) * out_stride) * sizeof(float) +
         (block_tokens + kSegmentKeys) * 2 * sizeof(RowRange);
}

}  // namespace

AttentionScratch::AttentionScratch() : impl_(std::make_unique<Impl>()) {}
AttentionScratch::~AttentionScratch() = default;
AttentionScratch::AttentionScratch(AttentionScratch&&) noexcept = default;
AttentionScratch& AttentionScratch::operator=(AttentionScratch&&) noexcept = default;

size_t AttentionScratch::size_bytes() const {
  const Impl& s = *impl_;
  size_t bytes = vector_bytes(s.plans) + vector_bytes(s.runs) + vector_bytes(s.buffers) +
                 vector_bytes(s.prefills);
  for (const DecodePlan& plan : s.plans) bytes += plan.size_bytes();
  for (const RunBuffers& buffers : s.buffers) bytes += vector_bytes(buffers.logits);
  for (const BlockedPrefill& prefill : s.prefills) bytes += prefill.size_bytes();
  return bytes;
}

size_t AttentionScratch::bytes_for(const AttentionSpec& spec, int num_decode_rows, int num_tokens,
                                   int block_tokens, int num_threads) {
  const auto group = static_cast<size_t>(spec.num_heads / spec.num_kv_heads);
  const auto dim = static_cast<size_t>(spec.head_dim);
  const auto tokens = static_cast<size_t>(num_tokens);
  const auto jobs = static_cast<size_t>(num_decode_rows) * static_cast<size_t>(spec.num_kv_heads);
  const size_t per_thread = sizeof(RunBuffers) + group * kRunCapacity * sizeof(float) +
                            prefill_bytes(group, dim, tokens, static_cast<size_t>(block_tokens));
  // A vector that grows may double.
  return 2 * (jobs * decode_job_bytes(group, dim, tokens) +
              static_cast<size_t>(num_threads) * per_thread);
}

}  // namespace ikv
