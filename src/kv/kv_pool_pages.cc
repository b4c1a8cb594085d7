// Pages of a KvPool: addresses, views, change of form.
#include <string>
#include <utility>

#include "kv/kv_pool.h"

namespace ikv {

const KvPageLayout& KvPool::sealed_layout(int layer) const {
  return classes_[sealed_class_[layer]].layout;
}
const KvPageLayout& KvPool::tail_layout(int layer) const {
  return classes_[tail_class_[layer]].layout;
}

const KvPageLayout* KvPool::layout(int layer, KvFormats formats) const {
  const int page_class = class_of(formats, head_dim(layer));
  return page_class < 0 ? nullptr : &classes_[page_class].layout;
}

std::byte* KvPool::page_codes(BlockId block, int layer, int kv_head) {
  return const_cast<std::byte*>(std::as_const(*this).page_codes(block, layer, kv_head));
}
const std::byte* KvPool::page_codes(BlockId block, int layer, int kv_head) const {
  const std::byte* data = slot_data(table_.record(block).code_slot);
  return data == nullptr ? nullptr : data + code_offset_[page_index(layer, kv_head)];
}

std::byte* KvPool::page_digest(BlockId block, int layer, int kv_head) {
  return const_cast<std::byte*>(std::as_const(*this).page_digest(block, layer, kv_head));
}
const std::byte* KvPool::page_digest(BlockId block, int layer, int kv_head) const {
  const std::byte* data = slot_data(table_.record(block).digest_slot);
  return data == nullptr ? nullptr : data + digest_offset_[page_index(layer, kv_head)];
}

void KvPool::append_views(KvSequenceId id, int layer, int kv_head,
                          std::vector<KvPageView>& out) const {
  LogicalPos begin = 0;
  for (const BlockId block : blocks(id)) {
    KvPageView view;
    view.data = page_data(block, layer, kv_head);
    view.layout = &page_layout(block, layer, kv_head);
    view.begin = begin;
    view.num_tokens = block_num_tokens(block);
    out.push_back(view);
    begin += view.num_tokens;
  }
}

Result<SlotId> KvPool::begin_set_page(BlockId block, int layer, KvFormats formats) {
  const int page_class = class_of(formats, head_dim(layer));
  if (page_class < 0) {
    return invalid_argument("the KV pool was not configured for pages of K " +
                            std::string(kv_format_name(formats.k)) + ", V " +
                            std::string(kv_format_name(formats.v)));
  }
  const int arena_class = classes_[page_class].arena_class;
  Needs total = promised_;
  total.slots[arena_class] += 1;
  IKV_RETURN_IF_ERROR(check_fits(total));
  SlotId slot = kNoSlot;
  const auto take = [&] { return (slot = arena_.allocate(arena_class)) != kNoSlot; };
  // Reclaiming could take the very block when it is idle.
  if (table_.record(block).refcount > 0 ? !with_room(take) : !take()) {
    return make_error(ErrorCode::kOutOfMemory, "no KV memory for the new form of a page");
  }
  return slot;
}

void KvPool::finish_set_page(BlockId block, int layer, int kv_head, KvFormats formats,
                             KvPageState state, SlotId slot) {
  KvBlockRecord& r = table_.record(block);
  IKV_CHECK(r.sealed && (state == KvPageState::kHot || state == KvPageState::kCold));
  const int page = page_index(layer, kv_head);
  release_slot(block, page);
  r.address_stamp = ++last_stamp_;
  KvPageMeta& meta = table_.metas(block)[page];
  meta.page_class = static_cast<uint8_t>(class_of(formats, head_dim(layer))) & 31;
  meta.state = state;
  table_.slots(block)[page] = slot;
  if (r.refcount > 0) ++live_slots_[classes_[meta.page_class].arena_class];
  publish_stats();
}

void KvPool::release_slot(BlockId block, int page) {
  KvBlockRecord& r = table_.record(block);
  KvPageMeta& meta = table_.metas(block)[page];
  SlotId& slot = table_.slots(block)[page];
  if (meta.state == KvPageState::kDropped) --r.num_dropped;
  if (slot == kNoSlot) return;
  const int arena_class = classes_[meta.page_class].arena_class;
  arena_.free(arena_class, slot);
  slot = kNoSlot;
  if (r.refcount > 0) --live_slots_[arena_class];
}

void KvPool::release_page(BlockId block, int layer, int kv_head, KvPageState state) {
  IKV_CHECK(state == KvPageState::kSpilled || state == KvPageState::kDropped);
  KvBlockRecord& r = table_.record(block);
  IKV_CHECK(r.sealed);
  const int page = page_index(layer, kv_head);
  release_slot(block, page);
  r.address_stamp = ++last_stamp_;
  table_.metas(block)[page].state = state;
  if (state == KvPageState::kDropped) ++r.num_dropped;
  publish_stats();
}

}  // namespace ikv
