#include "engine/audit_recorder.h"

#include <algorithm>
#include <numeric>

namespace ikv {
namespace {

const char* part_name(SpanPart part) {
  switch (part) {
    case SpanPart::kHeader:
      return "header";
    case SpanPart::kContent:
      return "content";
    case SpanPart::kFooter:
      return "footer";
  }
  return "?";
}

double mean_share(const std::vector<float>& shares, int32_t begin, int32_t end) {
  if (end <= begin) return 1.0;
  return std::accumulate(shares.begin() + begin, shares.begin() + end, 0.0) / (end - begin);
}

}  // namespace

void AuditRecorder::note_mass(const std::vector<std::vector<float>>& mass) {
  mass_.clear();
  double all = 0;
  for (const std::vector<float>& page : mass) {
    if (mass_.size() < page.size()) mass_.resize(page.size());
    for (size_t i = 0; i < page.size(); ++i) mass_[i] += double{page[i]};
    all += std::accumulate(page.begin(), page.end(), 0.0);
  }
  if (all <= 0) return;
  for (double& share : mass_) share /= all;
}

void AuditRecorder::add_blocks(const KvPool& pool, KvSequenceId sequence, TurnAudit& audit) const {
  const auto blocks = pool.blocks(sequence);
  const int32_t length = pool.length(sequence);
  for (size_t i = 0; i < blocks.size(); ++i) {
    AuditBlock block;
    block.begin = static_cast<int32_t>(i) * pool.block_tokens();
    block.end = std::min(length, block.begin + pool.block_tokens());
    if (block.end <= block.begin) break;
    for (int layer = 0; layer < pool.num_layers(); ++layer) {
      for (int head = 0; head < pool.num_kv_heads(layer); ++head) {
        const bool cold = pool.page_state(blocks[i], layer, head) == KvPageState::kCold;
        ++(cold ? block.cold_pages : block.hot_pages);
      }
    }
    if (block.end - block.begin == pool.block_tokens()) {
      audit.hot_pages += block.hot_pages;
      audit.cold_pages += block.cold_pages;
    }
    if (i < mass_.size()) block.mass = mass_[i];
    if (i < reasons_.size()) block.reasons = reasons_[i];
    block.attended_share = mean_share(audit.attended_shares, block.begin, block.end);
    audit.blocks.push_back(block);
  }
}

TurnAudit AuditRecorder::make_audit(const KvPool& pool, KvSequenceId sequence,
                                    const KvPolicy& policy, const TokenizedChat& chat) const {
  TurnAudit audit;
  audit.attend_budget = to_string(policy.attend.budget);
  audit.resident_budget = to_string(policy.resident);
  audit.num_steps = num_steps_;
  audit.tokens = chat.tokens;
  audit.attended_shares = counter_.shares();
  // What no step could read (the last token) and what the reply gave back.
  audit.attended_shares.resize(
      std::max(chat.tokens.size(), static_cast<size_t>(pool.length(sequence))), 1.0f);
  for (const Span& span : chat.spans) {
    AuditSpan entry;
    entry.message = span.message;
    entry.role = span.role;
    entry.part = part_name(span.part);
    entry.begin = span.begin;
    entry.end = span.end;
    entry.attended_share = mean_share(audit.attended_shares, span.begin, span.end);
    audit.spans.push_back(std::move(entry));
  }
  add_blocks(pool, sequence, audit);
  audit.attended_shares.resize(chat.tokens.size());
  return audit;
}

}  // namespace ikv
