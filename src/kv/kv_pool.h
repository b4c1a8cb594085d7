// KvPool: the memory that every session's keys and values live in; pages, sharing, a hard cap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/memory_ledger.h"
#include "base/result.h"
#include "core/ids.h"
#include "core/kv_format.h"
#include "core/kv_view.h"
#include "kv/block_table.h"
#include "kv/kv_pool_types.h"
#include "kv/prefix_index.h"
#include "kv/slot_arena.h"

namespace ikv {

/// The pool. A *block* is `block_tokens` consecutive tokens over all layers and KV heads and owns
/// hash, reference count and tokens; a *page* is its share of one layer and KV head: slot, format
/// and state. A full block is sealed: its pages stand in `formats`, never change content, and are
/// shared by chained hash. The newest block of a sequence is its private tail in f16 (f32 when K or
/// V is f32, bf16 when both are bf16).
///
/// Residency is a property of the block: when level 1 demotes a page of a shared block all sharers
/// see it (and all profit from a recall). A caller that must not disturb others looks at
/// block_refcount() first; deduplication upgrades a demoted block in place with the fresh pages.
///
/// A step: reserve() for each sequence of the batch, then pointers, then the model, then commit()
/// or abandon() for each. Pointers and views stay valid until the next call that is not const;
/// every such call may move pages. One thread (the engine's) mutates; stats() may be called from
/// any.
class KvPool {
 public:
  /// Checks the configuration and reserves address space; charges only a few tables. Errors:
  /// kInvalidArgument or kUnsupported naming the field; kOutOfMemory with the minimum when the cap
  /// cannot hold one block and its tail. `ledger` must outlive the pool.
  static Result<std::unique_ptr<KvPool>> create(KvPoolConfig config, MemoryLedger* ledger);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  // --- Sequences -------------------------------------------------------------------------------

  /// A new empty sequence. kOutOfMemory when its table entry does not fit.
  Result<KvSequenceId> open(KvShareKey key);

  /// Length in tokens of the longest stored prefix of `tokens` in whole sealed blocks. Tokens are
  /// compared, not only hashes. Cost: one hash of each matched block. Ends before a block with a
  /// dropped page.
  int32_t match(std::span<const TokenId> tokens, KvShareKey key) const;

  /// Makes the empty sequence `sequence` start with the longest stored prefix of `tokens` (shared,
  /// not copied) and returns its length. A caller that needs logits of the last token passes
  /// `tokens` without it.
  Result<int32_t> adopt(KvSequenceId sequence, std::span<const TokenId> tokens);

  /// A new sequence equal to the first `num_tokens` of `source`: sealed blocks shared, tail copied.
  /// A cut inside a sealed block falls to its border, so look at length(). kOutOfMemory changes
  /// nothing.
  Result<KvSequenceId> fork(KvSequenceId source, int32_t num_tokens);

  /// Drops all tokens from `num_tokens` on and returns the real new length: exact in the tail,
  /// rounded down to the block's border in a sealed block. Not between reserve() and commit().
  int32_t truncate(KvSequenceId sequence, int32_t num_tokens);

  /// Ends a sequence. Its published blocks stay idle until reclaimed; a pending step is abandoned.
  void close(KvSequenceId sequence);

  /// Cached, committed tokens.
  int32_t length(KvSequenceId sequence) const;
  KvShareKey share_key(KvSequenceId sequence) const;
  /// Token at `position` < length(sequence).
  TokenId token(KvSequenceId sequence, int32_t position) const;
  /// Committed blocks in order; block i starts at position i * block_tokens; the tail is last.
  std::span<const BlockId> blocks(KvSequenceId sequence) const;

  // --- Steps -----------------------------------------------------------------------------------

  /// Allocates all that `num_new_tokens` >= 1 more tokens need: blocks, page slots, tail, tables.
  /// Idle prefixes are reclaimed for it, least recently used first, pinned last. Refused as a whole
  /// with needed, free and cap (kOutOfMemory) when that, and what others were promised, do not fit.
  Status reserve(KvSequenceId sequence, int32_t num_new_tokens);

  /// The pages of the pending step. Valid between reserve() and commit() or abandon().
  KvStep step(KvSequenceId sequence) const;
  bool has_step(KvSequenceId sequence) const;

  /// Ends the step with `tokens`, at most as many as were reserved (fewer: rejected speculation).
  /// Seals and publishes full blocks, deduplicates them against equal stored ones. Returns the new
  /// length: old + tokens.size(), except that a cut inside a block that the step was to seal and
  /// that did not begin in `tail` falls to that block's border. Never fails for want of memory.
  int32_t commit(KvSequenceId sequence, std::span<const TokenId> tokens);

  /// Frees all that the step reserved; the sequence is as before reserve().
  void abandon(KvSequenceId sequence);

  // --- Admission -------------------------------------------------------------------------------

  /// Promises that `sequence` can grow to `num_tokens` whatever other sequences do, or refuses with
  /// the figures (kOutOfMemory). Replaces an earlier promise; 0 gives it back; close() too.
  Status promise(KvSequenceId sequence, int32_t num_tokens);

  /// Bytes that an otherwise empty pool needs to bring one sequence to `num_tokens`.
  size_t bytes_needed(int32_t num_tokens) const;

  /// Reclaims and compacts until the ledger can take `cap_bytes`; refused when live blocks and
  /// promises need more, or above arena_bytes.
  Status set_cap(size_t cap_bytes);

  /// Gives back idle blocks, least recently used first, until at least `num_bytes` of charge are
  /// returned or none is left; returns the bytes. For other owners of the same ledger.
  size_t reclaim(size_t num_bytes);
  /// The same by number: gives back at most `num_blocks` idle blocks and returns how many.
  size_t reclaim_blocks(size_t num_blocks);

  /// Marks the sealed blocks of the first `num_tokens` so that they are reclaimed last once idle.
  /// Pins count; each needs its unpin(). The pin outlives the sequence and any reclaim.
  KvPinId pin(KvSequenceId sequence, int32_t num_tokens);
  void unpin(KvPinId pin);

  // --- Pages -----------------------------------------------------------------------------------

  /// Bytes of a page in memory; null when its state is spilled or dropped. Writable for blocks of a
  /// pending step and tails; sealed blocks only by set_page().
  std::byte* page_data(BlockId block, int layer, int kv_head) {
    return slot_data(table_.slots(block)[page_index(layer, kv_head)]);
  }
  const std::byte* page_data(BlockId block, int layer, int kv_head) const {
    return slot_data(table_.slots(block)[page_index(layer, kv_head)]);
  }
  const KvPageLayout& page_layout(BlockId block, int layer, int kv_head) const {
    return classes_[table_.metas(block)[page_index(layer, kv_head)].page_class].layout;
  }
  KvPageState page_state(BlockId block, int layer, int kv_head) const {
    return table_.metas(block)[page_index(layer, kv_head)].state;
  }
  /// Layout that sealed pages of `layer` have at first; that of its tail pages.
  const KvPageLayout& sealed_layout(int layer) const;
  const KvPageLayout& tail_layout(int layer) const;
  /// Layout of `layer` in `formats` (the configured or a cold one); null when not configured.
  const KvPageLayout* layout(int layer, KvFormats formats) const;

  /// Key codes of a page (block_tokens x code bytes, in the coder's order) and its digest; written
  /// by the caller when tokens and pages are; null when not configured.
  std::byte* page_codes(BlockId block, int layer, int kv_head);
  const std::byte* page_codes(BlockId block, int layer, int kv_head) const;
  std::byte* page_digest(BlockId block, int layer, int kv_head);
  const std::byte* page_digest(BlockId block, int layer, int kv_head) const;

  /// Views of all pages of (layer, kv_head) in order, appended to `out`; data is null for pages
  /// that are not in memory. Of committed blocks only.
  void append_views(KvSequenceId sequence, int layer, int kv_head,
                    std::vector<KvPageView>& out) const;

  /// Gives a sealed page other bytes: allocates a slot in `formats`, lets the caller fill it
  /// (`encode(old bytes or null, new bytes)`), frees the old slot, sets `state`. kOutOfMemory
  /// leaves the page as it was. One call serves demotion (kCold) and recall (kHot). `encode` must
  /// not call the pool. For a page of an idle block nothing is reclaimed.
  template <typename Encode>
  Status set_page(BlockId block, int layer, int kv_head, KvFormats formats, KvPageState state,
                  Encode&& encode) {
    auto slot = begin_set_page(block, layer, formats);
    if (!slot.ok()) return slot.error();
    encode(static_cast<const std::byte*>(page_data(block, layer, kv_head)),
           slot_data(slot.value()));
    finish_set_page(block, layer, kv_head, formats, state, slot.value());
    return {};
  }
  /// Frees a page's slot; its state becomes kSpilled or kDropped.
  void release_page(BlockId block, int layer, int kv_head, KvPageState state);

  // --- Blocks ----------------------------------------------------------------------------------

  int32_t block_num_tokens(BlockId block) const { return table_.record(block).num_tokens; }
  bool block_sealed(BlockId block) const { return table_.record(block).sealed; }
  /// Open sequences that hold the block.
  uint32_t block_refcount(BlockId block) const { return table_.record(block).refcount; }
  /// Changes whenever a page, the codes or the digest of the block get another address, and differs
  /// between any two blocks that ever had the same id: what a caller remembers of (id, stamp)
  /// holds.
  uint64_t block_address_stamp(BlockId block) const { return table_.record(block).address_stamp; }
  /// Chained hash; names the block's content across processes (snapshots, spill files).
  KvBlockHash block_hash(BlockId block) const { return table_.record(block).hash; }
  std::span<const TokenId> block_tokens_of(BlockId block) const {
    return {table_.tokens(block), static_cast<size_t>(table_.record(block).num_tokens)};
  }

  int block_tokens() const { return config_.block_tokens; }
  int num_layers() const { return static_cast<int>(config_.layers.size()); }
  int num_kv_heads(int layer) const { return config_.layers[layer].num_kv_heads; }
  int head_dim(int layer) const { return config_.layers[layer].head_dim; }
  int pages_per_block() const { return pages_per_block_; }
  /// Index of (layer, kv_head) within a block's pages.
  int page_index(int layer, int kv_head) const { return first_page_[layer] + kv_head; }
  const KvPoolConfig& config() const { return config_; }

  /// From any thread.
  KvPoolStats stats() const;

  /// Walks everything and compares with the counters; an error names the first broken invariant.
  /// Costs O(pool); for tests and `inspect`.
  Status check_invariants() const;

 private:
  struct PageClass {
    KvPageLayout layout;
    int arena_class = 0;
  };
  static constexpr int kMaxArenaClasses = 16;
  using SlotCounts = std::array<int64_t, kMaxArenaClasses>;

  struct Sequence {
    bool open = false;
    bool has_step = false;
    KvShareKey key;
    int32_t length = 0;
    int32_t step_length = 0;  ///< length after the pending step
    int32_t promised_tokens = 0;
    std::vector<BlockId> blocks;  ///< committed, then the step's sealed ones and its next tail
    uint32_t num_committed = 0;   ///< of `blocks`
    uint32_t num_step_sealed = 0;
    BlockId next_tail = kNoBlock;  ///< of the step; also last in `blocks` when it is new
    size_t charged_entries = 0;    ///< capacity of `blocks` that is charged
  };

  /// What an operation, or a promise, will take from the pool.
  struct Needs {
    int64_t sealed_blocks = 0;
    int64_t tail_blocks = 0;
    int64_t table_bytes = 0;  ///< of sequences
    SlotCounts slots{};       ///< beyond those of the blocks
    Needs& operator+=(const Needs& other);
    Needs& operator-=(const Needs& other);
  };

  KvPool(KvPoolConfig config, MemoryLedger* ledger);
  Status init();
  Status init_classes();
  Result<int> add_class(KvFormats formats, int head_dim, std::vector<SlotClass>& slot_classes);
  Status validate() const;
  int class_of(KvFormats formats, int head_dim) const;

  std::byte* slot_data(SlotId slot) const { return slot == kNoSlot ? nullptr : arena_.data(slot); }
  Result<SlotId> begin_set_page(BlockId block, int layer, KvFormats formats);
  void finish_set_page(BlockId block, int layer, int kv_head, KvFormats formats, KvPageState state,
                       SlotId slot);

  Sequence& sequence(KvSequenceId id);
  const Sequence& sequence(KvSequenceId id) const;

  // Blocks (kv_pool_blocks.cc).
  BlockId allocate_block(bool sealed, KvShareKey key);
  bool allocate_slots(BlockId block);
  void free_block(BlockId block);
  void acquire(BlockId block);
  void release(BlockId block);
  void count_live(BlockId block, int64_t sign);
  void list_push(BlockId block);
  void list_remove(BlockId block);
  void copy_block(BlockId from, BlockId to);
  void copy_codes(BlockId from, BlockId to);
  void release_slot(BlockId block, int page);
  BlockId publish(BlockId block);
  void upgrade(BlockId stored, BlockId fresh);
  KvBlockHash chain_hash(BlockId parent, KvShareKey key, std::span<const TokenId> tokens) const;
  BlockId find_block(BlockId parent, KvShareKey key, std::span<const TokenId> tokens,
                     const KvBlockHash& hash) const;
  std::vector<BlockId> find_prefix(std::span<const TokenId> tokens, KvShareKey key) const;

  // Steps (kv_pool_steps.cc).
  void drop_step_blocks(Sequence& s, uint32_t num_kept_sealed, bool keep_next_tail);
  void cut_blocks(Sequence& s, size_t num_blocks);

  // Memory (kv_pool_memory.cc).
  Needs needs_of(int32_t num_tokens) const;
  Needs unmet_promise(const Sequence& s, const Needs& extra) const;
  void refresh_promise(KvSequenceId id);
  size_t required_bytes(const Needs& total, size_t min_table_chunks = 0) const;
  bool grow_tables();
  BlockId allocate_record();
  Status check_fits(const Needs& total) const;
  bool make_room();
  bool reclaim_one();
  bool compact(int64_t divisor);
  void compact_class(int arena_class);
  bool grow_list(Sequence& s, size_t num_entries);
  int64_t list_growth_bytes(const Sequence& s, size_t num_entries) const;
  size_t own_charged_bytes() const;
  /// Charged for each block that a sequence lists.
  size_t entry_bytes() const { return sizeof(BlockId) + config_.sequence_block_bytes; }
  template <typename Try>
  bool with_room(Try&& attempt) {
    while (!attempt()) {
      if (!make_room()) return false;
    }
    return true;
  }
  void publish_stats();

  /// Idle blocks in order of last use; a child always stands before its parent.
  struct BlockList {
    BlockId front = kNoBlock;
    BlockId back = kNoBlock;
    size_t size = 0;
  };

  // Checks (kv_pool_check.cc).
  Status check_sequences(std::unordered_map<BlockId, uint32_t>& refcounts) const;
  Status check_slots(const std::unordered_map<BlockId, uint32_t>& refcounts) const;
  Status check_sharing(const std::unordered_map<BlockId, uint32_t>& refcounts) const;
  Status check_list(const BlockList& list, bool pinned) const;
  Status check_ledger() const;

  KvPoolConfig config_;
  MemoryLedger* ledger_;
  KvFormats tail_formats_;
  std::vector<PageClass> classes_;
  std::vector<uint8_t> sealed_class_, tail_class_;     ///< by layer
  std::vector<int> first_page_;                        ///< by layer, index of its first page
  std::vector<uint16_t> page_layer_;                   ///< by page of a block
  std::vector<uint32_t> code_offset_, digest_offset_;  ///< by page of a block, in bytes
  int pages_per_block_ = 0;
  int code_class_ = -1, digest_class_ = -1;   ///< arena classes; -1: not kept
  SlotCounts sealed_slots_{}, tail_slots_{};  ///< of one block, by arena class

  uint64_t last_stamp_ = 0;  ///< see block_address_stamp()
  SlotArena arena_;
  BlockTable table_;
  PrefixIndex index_;
  std::vector<Sequence> sequences_;
  std::vector<KvSequenceId> free_sequences_;
  std::vector<BlockId> pins_;  ///< by pin id: last block of the pinned prefix
  std::vector<KvPinId> free_pins_;
  MemoryLedger::Charge sequence_charge_;
  BlockList idle_, pinned_idle_;
  Needs promised_;            ///< sum of unmet promises
  Needs operation_;           ///< that and what the running operation takes
  std::vector<Needs> unmet_;  ///< by sequence
  SlotCounts live_slots_{};
  int64_t live_blocks_ = 0;
  KvPoolStats counters_;

  mutable std::mutex stats_mutex_;
  KvPoolStats stats_;
};

}  // namespace ikv
