// Steps of a KvPool: reserve, commit, abandon, truncate.
#include <algorithm>
#include <string>

#include "kv/kv_pool.h"

namespace ikv {

Status KvPool::reserve(KvSequenceId id, int32_t num_new_tokens) {
  Sequence& s = sequence(id);
  IKV_CHECK(num_new_tokens >= 1 && !s.has_step);
  const int bt = config_.block_tokens;
  if (num_new_tokens > INT32_MAX - s.length) {
    return make_error(ErrorCode::kContextExceeded, "a session of " + std::to_string(s.length) +
                                                       " tokens cannot grow by " +
                                                       std::to_string(num_new_tokens));
  }
  const int32_t new_length = s.length + num_new_tokens;
  const BlockId tail = s.length % bt != 0 ? s.blocks.back() : kNoBlock;
  const int32_t num_sealed = new_length / bt - s.length / bt;
  const bool new_tail = new_length % bt != 0 && (num_sealed > 0 || tail == kNoBlock);
  Needs extra;
  extra.sealed_blocks = num_sealed;
  extra.tail_blocks = new_tail ? 1 : 0;
  const size_t num_entries = s.blocks.size() + static_cast<size_t>(num_sealed) + 1;
  Needs total = promised_;
  total -= unmet_[id];
  total += unmet_promise(s, extra);
  total += extra;
  total.table_bytes += list_growth_bytes(s, num_entries);
  IKV_RETURN_IF_ERROR(check_fits(total));

  operation_ = total;
  bool ok = grow_list(s, num_entries);
  s.num_step_sealed = 0;
  s.next_tail = new_length % bt == 0 ? kNoBlock : tail;
  for (int32_t i = 0; ok && i < num_sealed + (new_tail ? 1 : 0); ++i) {
    const BlockId block = allocate_block(/*sealed=*/i < num_sealed, s.key);
    ok = block != kNoBlock;
    if (!ok) break;
    s.blocks.push_back(block);
    if (i < num_sealed) {
      ++s.num_step_sealed;
    } else {
      s.next_tail = block;
    }
  }
  if (!ok) {
    // The arithmetic said yes, so another owner of the ledger took memory in between.
    drop_step_blocks(s, 0, /*keep_next_tail=*/false);
    publish_stats();
    return make_error(ErrorCode::kOutOfMemory,
                      "KV memory ran out while " + std::to_string(num_new_tokens) +
                          " tokens were reserved: " + std::to_string(ledger_->free_bytes()) +
                          " bytes free under the cap of " + std::to_string(ledger_->cap_bytes()));
  }
  if (tail != kNoBlock && num_sealed > 0) copy_codes(tail, s.blocks[s.num_committed]);
  s.has_step = true;
  s.step_length = new_length;
  refresh_promise(id);
  publish_stats();
  return {};
}

bool KvPool::has_step(KvSequenceId id) const {
  return sequence(id).has_step;
}

KvStep KvPool::step(KvSequenceId id) const {
  const Sequence& s = sequence(id);
  IKV_CHECK(s.has_step);
  KvStep step;
  step.old_length = s.length;
  step.new_length = s.step_length;
  step.tail = s.length % config_.block_tokens != 0 ? s.blocks[s.num_committed - 1] : kNoBlock;
  step.next_tail = s.next_tail;
  step.sealed = {s.blocks.data() + s.num_committed, s.num_step_sealed};
  return step;
}

void KvPool::drop_step_blocks(Sequence& s, uint32_t num_kept_sealed, bool keep_next_tail) {
  const BlockId next_tail =
      s.blocks.size() > s.num_committed + s.num_step_sealed ? s.blocks.back() : kNoBlock;
  while (s.blocks.size() > s.num_committed + s.num_step_sealed) s.blocks.pop_back();
  if (next_tail != kNoBlock && !keep_next_tail) release(next_tail);
  while (s.num_step_sealed > num_kept_sealed) {
    release(s.blocks.back());
    s.blocks.pop_back();
    --s.num_step_sealed;
  }
  if (next_tail != kNoBlock && keep_next_tail) s.blocks.push_back(next_tail);
  s.has_step = false;
  s.next_tail = kNoBlock;
}

void KvPool::abandon(KvSequenceId id) {
  Sequence& s = sequence(id);
  IKV_CHECK(s.has_step);
  drop_step_blocks(s, 0, /*keep_next_tail=*/false);
  refresh_promise(id);
  publish_stats();
}

int32_t KvPool::commit(KvSequenceId id, std::span<const TokenId> tokens) {
  Sequence& s = sequence(id);
  IKV_CHECK(s.has_step && tokens.size() <= static_cast<size_t>(s.step_length - s.length));
  const int32_t bt = config_.block_tokens;
  const int32_t old_length = s.length;
  const bool had_tail = old_length % bt != 0;
  int32_t new_length = old_length + static_cast<int32_t>(tokens.size());
  // Where the rows after the last whole block are: in the old tail, in the next one, or, when the
  // step was to seal their block, nowhere.
  const bool in_old_tail = had_tail && new_length / bt == old_length / bt;
  const bool in_next_tail = s.next_tail != kNoBlock && new_length / bt == s.step_length / bt;
  if (!in_old_tail && !in_next_tail) new_length -= new_length % bt;
  const bool keep_next = !in_old_tail && in_next_tail && new_length % bt != 0;
  if (in_old_tail && s.num_step_sealed > 0) {
    copy_codes(s.blocks[s.num_committed], s.blocks[s.num_committed - 1]);
  }
  drop_step_blocks(s, static_cast<uint32_t>(new_length / bt - old_length / bt), keep_next);

  const auto write = [&](size_t block_index, BlockId block) {
    const int32_t begin = static_cast<int32_t>(block_index) * bt;
    const int32_t end = std::min(begin + bt, new_length);
    for (int32_t p = std::max(begin, old_length); p < end; ++p) {
      table_.tokens(block)[p - begin] = tokens[p - old_length];
    }
    table_.record(block).num_tokens = end - begin;
  };
  const BlockId tail = had_tail ? s.blocks[s.num_committed - 1] : kNoBlock;
  if (s.num_step_sealed > 0 && had_tail) {
    // The tail's block is sealed: its first rows' tokens move over; their codes did in reserve().
    std::copy_n(table_.tokens(tail), old_length % bt, table_.tokens(s.blocks[s.num_committed]));
    s.blocks.erase(s.blocks.begin() + (s.num_committed - 1));
    release(tail);
  }
  for (size_t i = static_cast<size_t>(old_length / bt); i < s.blocks.size(); ++i) {
    write(i, s.blocks[i]);
  }
  for (uint32_t i = 0; i < s.num_step_sealed; ++i) {
    const size_t index = static_cast<size_t>(old_length / bt) + i;
    KvBlockRecord& r = table_.record(s.blocks[index]);
    r.parent = index == 0 ? kNoBlock : s.blocks[index - 1];
    r.hash = chain_hash(r.parent, r.key, {table_.tokens(s.blocks[index]), static_cast<size_t>(bt)});
    s.blocks[index] = publish(s.blocks[index]);
  }
  s.num_step_sealed = 0;
  s.num_committed = static_cast<uint32_t>(s.blocks.size());
  s.length = new_length;
  refresh_promise(id);
  publish_stats();
  return new_length;
}

void KvPool::cut_blocks(Sequence& s, size_t num_blocks) {
  while (s.blocks.size() > num_blocks) {
    const BlockId block = s.blocks.back();
    s.blocks.pop_back();
    release(block);
  }
  s.num_committed = static_cast<uint32_t>(s.blocks.size());
}

int32_t KvPool::truncate(KvSequenceId id, int32_t num_tokens) {
  Sequence& s = sequence(id);
  IKV_CHECK(!s.has_step && num_tokens >= 0);
  if (num_tokens >= s.length) return s.length;
  const int32_t bt = config_.block_tokens;
  const int32_t num_sealed = num_tokens / bt;
  const int32_t tail_tokens = num_sealed == s.length / bt ? num_tokens % bt : 0;
  cut_blocks(s, static_cast<size_t>(num_sealed + (tail_tokens > 0 ? 1 : 0)));
  s.length = num_sealed * bt + tail_tokens;
  if (tail_tokens > 0) table_.record(s.blocks.back()).num_tokens = tail_tokens;
  refresh_promise(id);
  // Blocks that others still hold were given up without giving memory back; a promise that counted
  // on them may no longer hold.
  if (s.promised_tokens > 0 && !check_fits(promised_).ok()) {
    s.promised_tokens = 0;
    refresh_promise(id);
  }
  publish_stats();
  return s.length;
}

}  // namespace ikv
