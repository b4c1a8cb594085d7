#include "engine/page_view_cache.h"

#include <algorithm>

namespace ikv {
namespace {

// Blocks by which the lists grow; one more than wanted is lent to the unsealed page.
constexpr size_t kStep = 16;

}  // namespace

size_t PageViewCache::bytes_per_block(size_t pages_per_block, bool codes) {
  return pages_per_block * (sizeof(KvPageView) + (codes ? sizeof(std::byte*) : 0)) +
         sizeof(BlockId) + sizeof(uint64_t);
}

PageViewCache::Pages& PageViewCache::update(KvSequenceId sequence,
                                            std::span<const BlockId> committed,
                                            std::span<const BlockId> step) {
  Pages& pages = sequences_[sequence];
  const size_t num_pages = static_cast<size_t>(pool_.pages_per_block());
  pages.views.resize(num_pages);
  if (pool_.config().code_bytes_per_token != nullptr) pages.codes.resize(num_pages);
  const size_t wanted = committed.size() + step.size();
  const auto block_at = [&](size_t i) {
    return i < committed.size() ? committed[i] : step[i - committed.size()];
  };
  size_t valid = 0;
  while (valid < std::min(wanted, pages.blocks.size()) && pages.blocks[valid] == block_at(valid) &&
         pages.stamps[valid] == pool_.block_address_stamp(block_at(valid))) {
    ++valid;
  }
  if (valid < pages.blocks.size()) {
    pages.blocks.resize(valid);
    pages.stamps.resize(valid);
    for (auto& views : pages.views) views.resize(valid);
    for (auto& codes : pages.codes) codes.resize(valid);
  }
  // Grown in small steps, since what is charged is what is needed.
  const size_t capacity = (wanted + kStep) / kStep * kStep;
  pages.blocks.reserve(capacity);
  pages.stamps.reserve(capacity);
  for (auto& views : pages.views) views.reserve(capacity);
  for (auto& codes : pages.codes) codes.reserve(capacity);
  for (size_t i = valid; i < wanted; ++i) append(pages, block_at(i));
  return pages;
}

void PageViewCache::append(Pages& pages, BlockId block) const {
  const auto begin = static_cast<LogicalPos>(pages.blocks.size()) * pool_.block_tokens();
  for (int layer = 0; layer < pool_.num_layers(); ++layer) {
    for (int head = 0; head < pool_.num_kv_heads(layer); ++head) {
      const size_t page = static_cast<size_t>(pool_.page_index(layer, head));
      KvPageView view;
      view.data = pool_.page_data(block, layer, head);
      view.layout = &pool_.page_layout(block, layer, head);
      view.begin = begin;
      view.num_tokens = pool_.block_tokens();
      pages.views[page].push_back(view);
      if (!pages.codes.empty()) pages.codes[page].push_back(pool_.page_codes(block, layer, head));
    }
  }
  pages.blocks.push_back(block);
  pages.stamps.push_back(pool_.block_address_stamp(block));
}

}  // namespace ikv
