#include "kv/kv_pool.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace ikv {

namespace {

size_t align64(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

KvFormats tail_formats_for(KvFormats formats) {
  if (formats.k == KvFormat::kF32 || formats.v == KvFormat::kF32) {
    return {KvFormat::kF32, KvFormat::kF32};
  }
  if (formats.k == KvFormat::kBF16 && formats.v == KvFormat::kBF16) return formats;
  return {KvFormat::kF16, KvFormat::kF16};
}

}  // namespace

KvPool::Needs& KvPool::Needs::operator+=(const Needs& other) {
  sealed_blocks += other.sealed_blocks;
  tail_blocks += other.tail_blocks;
  table_bytes += other.table_bytes;
  for (size_t c = 0; c < slots.size(); ++c) slots[c] += other.slots[c];
  return *this;
}

KvPool::Needs& KvPool::Needs::operator-=(const Needs& other) {
  sealed_blocks -= other.sealed_blocks;
  tail_blocks -= other.tail_blocks;
  table_bytes -= other.table_bytes;
  for (size_t c = 0; c < slots.size(); ++c) slots[c] -= other.slots[c];
  return *this;
}

KvPool::KvPool(KvPoolConfig config, MemoryLedger* ledger)
    : config_(std::move(config)),
      ledger_(ledger),
      tail_formats_(tail_formats_for(config_.formats)) {}

KvPool::~KvPool() = default;

Result<std::unique_ptr<KvPool>> KvPool::create(KvPoolConfig config, MemoryLedger* ledger) {
  IKV_CHECK(ledger != nullptr);
  std::unique_ptr<KvPool> pool(new KvPool(std::move(config), ledger));
  IKV_RETURN_IF_ERROR(pool->validate());
  IKV_RETURN_IF_ERROR(pool->init());
  return pool;
}

Status KvPool::validate() const {
  const int bt = config_.block_tokens;
  if (bt < 16 || bt > 128 || bt % 16 != 0) {
    return invalid_argument("block size " + std::to_string(bt) +
                            " tokens: it must be a multiple of 16 between 16 and 128");
  }
  if (config_.layers.empty() || config_.layers.size() > UINT16_MAX) {
    return invalid_argument("the KV pool needs between 1 and 65535 layers, not " +
                            std::to_string(config_.layers.size()));
  }
  for (size_t l = 0; l < config_.layers.size(); ++l) {
    const KvLayerShape& shape = config_.layers[l];
    if (shape.num_kv_heads < 1 || shape.num_kv_heads > 4096) {
      return invalid_argument("layer " + std::to_string(l) + " has " +
                              std::to_string(shape.num_kv_heads) + " KV heads");
    }
    if (shape.head_dim < 32 || shape.head_dim > 512 || shape.head_dim % 32 != 0) {
      return unsupported("layer " + std::to_string(l) + " has head size " +
                         std::to_string(shape.head_dim) +
                         ": multiples of 32 between 32 and 512 are supported");
    }
  }
  if (!config_.make_layout) return invalid_argument("the KV pool has no page layout function");
  return {};
}

Result<int> KvPool::add_class(KvFormats formats, int head_dim,
                              std::vector<SlotClass>& slot_classes) {
  const int known = class_of(formats, head_dim);
  if (known >= 0) return known;
  IKV_ASSIGN_OR_RETURN(const KvPageLayout layout,
                       config_.make_layout(formats, head_dim, config_.block_tokens));
  // Formats whose pages are equally large share extents.
  size_t arena_class = 0;
  while (arena_class < slot_classes.size() &&
         slot_classes[arena_class].slot_bytes != layout.page_bytes) {
    ++arena_class;
  }
  if (arena_class == slot_classes.size()) slot_classes.push_back({layout.page_bytes});
  if (classes_.size() == 31 || slot_classes.size() + 2 > kMaxArenaClasses) {
    return unsupported("the KV pool holds at most 31 page formats and " +
                       std::to_string(kMaxArenaClasses - 2) + " page sizes");
  }
  classes_.push_back({layout, static_cast<int>(arena_class)});
  return static_cast<int>(classes_.size()) - 1;
}

int KvPool::class_of(KvFormats formats, int head_dim) const {
  for (size_t c = 0; c < classes_.size(); ++c) {
    if (classes_[c].layout.formats == formats && classes_[c].layout.head_dim == head_dim) {
      return static_cast<int>(c);
    }
  }
  return -1;
}

Status KvPool::init_classes() {
  std::vector<SlotClass> slot_classes;
  size_t code_bytes = 0, digest_bytes = 0;
  for (size_t l = 0; l < config_.layers.size(); ++l) {
    const auto [num_heads, head_dim] = config_.layers[l];
    IKV_ASSIGN_OR_RETURN(const int sealed, add_class(config_.formats, head_dim, slot_classes));
    IKV_ASSIGN_OR_RETURN(const int tail, add_class(tail_formats_, head_dim, slot_classes));
    for (const KvFormats cold : config_.cold_formats) {
      IKV_RETURN_IF_ERROR(add_class(cold, head_dim, slot_classes));
    }
    sealed_class_.push_back(static_cast<uint8_t>(sealed));
    tail_class_.push_back(static_cast<uint8_t>(tail));
    sealed_slots_[classes_[sealed].arena_class] += num_heads;
    tail_slots_[classes_[tail].arena_class] += num_heads;
    first_page_.push_back(pages_per_block_);
    pages_per_block_ += num_heads;
    for (int h = 0; h < num_heads; ++h) {
      page_layer_.push_back(static_cast<uint16_t>(l));
      code_offset_.push_back(static_cast<uint32_t>(code_bytes));
      digest_offset_.push_back(static_cast<uint32_t>(digest_bytes));
      if (config_.code_bytes_per_token != nullptr) {
        code_bytes += config_.code_bytes_per_token(head_dim) * config_.block_tokens;
      }
      if (config_.digest_bytes_per_page != nullptr) {
        digest_bytes += config_.digest_bytes_per_page(head_dim);
      }
    }
  }
  if (code_bytes > 0) {
    code_class_ = static_cast<int>(slot_classes.size());
    slot_classes.push_back({align64(code_bytes), MemoryUse::kCodes});
    sealed_slots_[code_class_] = tail_slots_[code_class_] = 1;
  }
  if (digest_bytes > 0) {
    digest_class_ = static_cast<int>(slot_classes.size());
    slot_classes.push_back({align64(digest_bytes), MemoryUse::kDigests});
    sealed_slots_[digest_class_] = 1;
  }
  const size_t arena_bytes = config_.arena_bytes != 0 ? config_.arena_bytes : ledger_->cap_bytes();
  return arena_.init(arena_bytes, slot_classes, ledger_);
}

Status KvPool::init() {
  IKV_RETURN_IF_ERROR(init_classes());
  IKV_RETURN_IF_ERROR(table_.init(pages_per_block_, config_.block_tokens, ledger_));
  IKV_RETURN_IF_ERROR(index_.init(&table_, ledger_));
  IKV_ASSIGN_OR_RETURN(sequence_charge_, ledger_->charge(MemoryUse::kTables, 0));
  const size_t minimum = bytes_needed(config_.block_tokens + 1);
  if (minimum > ledger_->free_bytes()) {
    return make_error(ErrorCode::kOutOfMemory,
                      "the KV memory of " + std::to_string(ledger_->cap_bytes()) + " bytes (" +
                          std::to_string(ledger_->free_bytes()) +
                          " free) cannot hold one block of a session: the minimum is " +
                          std::to_string(minimum) + " bytes");
  }
  publish_stats();
  return {};
}

KvPool::Sequence& KvPool::sequence(KvSequenceId id) {
  IKV_CHECK(id < sequences_.size() && sequences_[id].open);
  return sequences_[id];
}
const KvPool::Sequence& KvPool::sequence(KvSequenceId id) const {
  IKV_CHECK(id < sequences_.size() && sequences_[id].open);
  return sequences_[id];
}

Result<KvSequenceId> KvPool::open(KvShareKey key) {
  if (free_sequences_.empty()) {
    const size_t entry = sizeof(Sequence) + sizeof(Needs);
    // The table doubles, so that moving it costs little; both are charged while they coexist.
    if (sequences_.size() == sequences_.capacity()) {
      const size_t before = sequences_.capacity();
      const size_t after = std::max<size_t>(16, 2 * before);
      const size_t held = sequence_charge_.num_bytes();
      Needs total = promised_;
      total.table_bytes += static_cast<int64_t>(after * entry);
      IKV_RETURN_IF_ERROR(check_fits(total));
      if (!with_room([&] { return sequence_charge_.resize(held + after * entry).ok(); })) {
        return make_error(ErrorCode::kOutOfMemory, "no KV memory for the table of sessions");
      }
      sequences_.reserve(after);
      unmet_.reserve(after);
      const Status shrunk = sequence_charge_.resize(held + (after - before) * entry);
      IKV_CHECK(shrunk.ok());
    }
    free_sequences_.push_back(static_cast<KvSequenceId>(sequences_.size()));
    sequences_.emplace_back();
    unmet_.emplace_back();
  }
  const KvSequenceId id = free_sequences_.back();
  free_sequences_.pop_back();
  sequences_[id].open = true;
  sequences_[id].key = key;
  ++counters_.num_sequences;
  publish_stats();
  return id;
}

void KvPool::close(KvSequenceId id) {
  Sequence& s = sequence(id);
  if (s.has_step) abandon(id);
  s.promised_tokens = 0;
  refresh_promise(id);
  cut_blocks(s, 0);
  const Status shrunk =
      sequence_charge_.resize(sequence_charge_.num_bytes() - s.charged_entries * entry_bytes());
  IKV_CHECK(shrunk.ok());
  s = Sequence();
  free_sequences_.push_back(id);
  --counters_.num_sequences;
  publish_stats();
}

int32_t KvPool::match(std::span<const TokenId> tokens, KvShareKey key) const {
  return static_cast<int32_t>(find_prefix(tokens, key).size()) * config_.block_tokens;
}

Result<int32_t> KvPool::adopt(KvSequenceId id, std::span<const TokenId> tokens) {
  Sequence& s = sequence(id);
  IKV_CHECK(s.length == 0 && !s.has_step);
  std::vector<BlockId> found = find_prefix(tokens, s.key);
  if (found.empty()) return 0;
  for (const BlockId block : found) acquire(block);
  // Idle blocks become live, which must not eat what others were promised: give the end back until
  // all fits.
  while (true) {
    Needs total = promised_;
    total -= unmet_[id];
    Needs extra;
    extra.sealed_blocks = static_cast<int64_t>(found.size());
    total += unmet_promise(s, extra);
    total.table_bytes += list_growth_bytes(s, found.size());
    if (check_fits(total).ok() && grow_list(s, found.size())) break;
    release(found.back());
    found.pop_back();
    if (found.empty()) return 0;
  }
  s.blocks.assign(found.begin(), found.end());
  s.num_committed = static_cast<uint32_t>(found.size());
  s.length = static_cast<int32_t>(found.size()) * config_.block_tokens;
  refresh_promise(id);
  counters_.num_matched_tokens += static_cast<uint64_t>(s.length);
  publish_stats();
  return s.length;
}

Result<KvSequenceId> KvPool::fork(KvSequenceId source, int32_t num_tokens) {
  IKV_CHECK(num_tokens >= 0 && num_tokens <= sequence(source).length);
  IKV_CHECK(!sequence(source).has_step);
  const int bt = config_.block_tokens;
  IKV_ASSIGN_OR_RETURN(const KvSequenceId id, open(sequence(source).key));
  Sequence& from = sequence(source);  // after open(), which may move the table
  Sequence& s = sequence(id);
  const size_t num_sealed = static_cast<size_t>(num_tokens / bt);
  const bool in_tail = num_sealed * bt == static_cast<size_t>(from.length / bt) * bt;
  const int32_t tail_tokens = in_tail ? num_tokens % bt : 0;
  BlockId tail = kNoBlock;
  Needs extra;
  extra.tail_blocks = tail_tokens > 0 ? 1 : 0;
  Needs total = promised_;
  total += extra;
  total.table_bytes += list_growth_bytes(s, num_sealed + 1);
  Status fits = check_fits(total);
  operation_ = total;
  if (fits.ok() && !grow_list(s, num_sealed + 1)) fits = make_error(ErrorCode::kOutOfMemory, "");
  if (fits.ok() && tail_tokens > 0) {
    tail = allocate_block(/*sealed=*/false, s.key);
    if (tail == kNoBlock) fits = make_error(ErrorCode::kOutOfMemory, "");
  }
  if (!fits.ok()) {
    const std::string detail = fits.error().message;
    close(id);
    return make_error(
        ErrorCode::kOutOfMemory,
        detail.empty() ? "no KV memory left for the tail of a forked session" : detail);
  }
  for (size_t i = 0; i < num_sealed; ++i) {
    acquire(from.blocks[i]);
    s.blocks.push_back(from.blocks[i]);
  }
  if (tail != kNoBlock) {
    copy_block(from.blocks[num_sealed], tail);
    table_.record(tail).num_tokens = tail_tokens;
    s.blocks.push_back(tail);
  }
  s.num_committed = static_cast<uint32_t>(s.blocks.size());
  s.length = static_cast<int32_t>(num_sealed) * bt + tail_tokens;
  publish_stats();
  return id;
}

int32_t KvPool::length(KvSequenceId id) const {
  return sequence(id).length;
}
KvShareKey KvPool::share_key(KvSequenceId id) const {
  return sequence(id).key;
}

TokenId KvPool::token(KvSequenceId id, int32_t position) const {
  const Sequence& s = sequence(id);
  IKV_CHECK(position >= 0 && position < s.length);
  return table_.tokens(s.blocks[position / config_.block_tokens])[position % config_.block_tokens];
}

std::span<const BlockId> KvPool::blocks(KvSequenceId id) const {
  const Sequence& s = sequence(id);
  return {s.blocks.data(), s.num_committed};
}

KvPinId KvPool::pin(KvSequenceId id, int32_t num_tokens) {
  const Sequence& s = sequence(id);
  IKV_CHECK(num_tokens >= 0 && num_tokens <= s.length);
  const int32_t num_blocks = num_tokens / config_.block_tokens;
  BlockId last = num_blocks == 0 ? kNoBlock : s.blocks[num_blocks - 1];
  if (last != kNoBlock && !table_.record(last).published) last = kNoBlock;
  for (BlockId b = last; b != kNoBlock; b = table_.record(b).parent) ++table_.record(b).num_pins;
  if (free_pins_.empty()) {
    free_pins_.push_back(static_cast<KvPinId>(pins_.size()));
    pins_.push_back(kNoBlock);
  }
  const KvPinId pin_id = free_pins_.back();
  free_pins_.pop_back();
  pins_[pin_id] = last;
  return pin_id;
}

void KvPool::unpin(KvPinId pin_id) {
  IKV_CHECK(pin_id < pins_.size());
  // From the end to the start, so that in the idle list children stand before their parents.
  for (BlockId b = pins_[pin_id]; b != kNoBlock; b = table_.record(b).parent) {
    KvBlockRecord& r = table_.record(b);
    const bool idle = r.refcount == 0;
    if (idle) list_remove(b);
    --r.num_pins;
    if (idle) list_push(b);
  }
  pins_[pin_id] = kNoBlock;
  free_pins_.push_back(pin_id);
  publish_stats();
}

}  // namespace ikv
