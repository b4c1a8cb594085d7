#include "engine/residency.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/pool_setup.h"
#include "pruning/policy.h"
#include "quant/kv_codec.h"

namespace ikv {
namespace {

constexpr int32_t kRecentTokens = 128;

// One layer and KV head of one sequence.
class HeadResidency {
 public:
  HeadResidency(KvPool& pool, KvSequenceId sequence, int layer, int kv_head,
                std::span<const float> mass, std::span<const uint8_t> client_pins)
      : pool_(pool), layer_(layer), kv_head_(kv_head), client_pins_(client_pins) {
    const auto blocks = pool.blocks(sequence);
    num_sealed_ = static_cast<size_t>(pool.length(sequence) / pool.block_tokens());
    for (size_t i = 0; i < num_sealed_; ++i) {
      if (pool.page_state(blocks[i], layer, kv_head) != KvPageState::kHot) continue;
      hot_.push_back(i);
      blocks_.push_back(blocks[i]);
      mass_.push_back(i < mass.size() ? std::max(mass[i], 0.0f) : 0.0f);
    }
  }

  Status demote(const ResidentBudget& budget, ResidencyStats& stats,
                std::span<AuditReasons> audit) {
    const auto allowed = std::max<int64_t>(
        hot_pages_allowed(pool_, budget, layer_, static_cast<int64_t>(num_sealed_)),
        static_cast<int64_t>(num_pinned()));
    stats.cold_pages += num_sealed_ - hot_.size();
    stats.pinned_pages += static_cast<uint64_t>(std::count_if(
        hot_.begin(), hot_.end(), [&](size_t i) { return client_pinned(i) && !forced(i); }));
    note_colds(audit);
    if (static_cast<int64_t>(hot_.size()) > allowed) {
      IKV_RETURN_IF_ERROR(choose(allowed));
      for (size_t i = 0; i < hot_.size(); ++i) {
        const bool pruned = reasons_[i] == KeepReason::kPruned;
        if (pruned) IKV_RETURN_IF_ERROR(demote_page(blocks_[i]));
        note(audit, hot_[i], pruned ? &AuditReasons::demoted : &AuditReasons::score);
        if (pruned) {
          ++stats.demoted_pages;
          ++stats.cold_pages;
        } else {
          ++stats.hot_pages;
        }
      }
    } else {
      stats.hot_pages += hot_.size();
      for (const size_t index : hot_) note(audit, index, &AuditReasons::room);
    }
    return {};
  }

 private:
  // A pinned page is hot by its pin, whatever else speaks for it.
  void note(std::span<AuditReasons> audit, size_t block_index, int32_t AuditReasons::*reason) {
    if (audit.empty()) return;
    if (pinned(block_index) && reason != &AuditReasons::demoted) {
      const bool recent = forced(block_index) && block_index != 0;
      reason = recent ? &AuditReasons::recent : &AuditReasons::pin;
    }
    ++(audit[block_index].*reason);
  }
  void note_colds(std::span<AuditReasons> audit) {
    if (audit.empty()) return;
    for (size_t i = 0, next_hot = 0; i < num_sealed_; ++i) {
      if (next_hot < hot_.size() && hot_[next_hot] == i) {
        ++next_hot;
      } else {
        ++audit[i].earlier;
      }
    }
  }

  bool forced(size_t block_index) const {
    const auto recent = static_cast<size_t>(kRecentTokens / pool_.block_tokens());
    return block_index == 0 || block_index + recent >= num_sealed_;
  }
  bool client_pinned(size_t block_index) const {
    return block_index < client_pins_.size() && client_pins_[block_index] != 0;
  }
  bool pinned(size_t block_index) const {
    return forced(block_index) || client_pinned(block_index);
  }
  size_t num_pinned() const {
    return static_cast<size_t>(
        std::count_if(hot_.begin(), hot_.end(), [&](size_t i) { return pinned(i); }));
  }

  Status choose(int64_t allowed) {
    PolicyConfig config;
    config.kind = PolicyKind::kTopK;
    const std::vector<int32_t> sizes(hot_.size(), pool_.block_tokens());
    std::vector<uint8_t> pins;
    pins.reserve(hot_.size());
    for (const size_t index : hot_) pins.push_back(pinned(index) ? 1 : 0);
    PolicyInput input;
    input.mass = mass_;
    input.num_tokens = sizes;
    input.pinned = pins;
    input.budget_tokens = allowed * pool_.block_tokens();
    IKV_ASSIGN_OR_RETURN(PolicyResult result, run_policy(config, input));
    reasons_ = std::move(result.reason);
    return {};
  }

  Status demote_page(BlockId block) {
    const KvPageLayout from = pool_.page_layout(block, layer_, kv_head_);
    const KvPageLayout* to = pool_.layout(layer_, kColdFormats);
    return pool_.set_page(block, layer_, kv_head_, kColdFormats, KvPageState::kCold,
                          [&](const std::byte* old_bytes, std::byte* new_bytes) {
                            convert_kv_page(from, old_bytes, pool_.block_tokens(), *to, new_bytes);
                          });
  }

  KvPool& pool_;
  int layer_;
  int kv_head_;
  std::span<const uint8_t> client_pins_;
  size_t num_sealed_ = 0;
  std::vector<size_t> hot_;  // block indices
  std::vector<BlockId> blocks_;
  std::vector<float> mass_;
  std::vector<KeepReason> reasons_;
};

}  // namespace

int64_t hot_pages_allowed(const KvPool& pool, const ResidentBudget& budget, int layer,
                          int64_t num_sealed) {
  if (budget.kind == ResidentBudget::Kind::kShare) {
    return static_cast<int64_t>(
        std::floor(static_cast<double>(budget.share) * static_cast<double>(num_sealed)));
  }
  // Bytes of the whole session: what is not hot takes the cold size.
  const double hot = pool.sealed_layout(layer).page_bytes;
  const double cold = pool.layout(layer, kColdFormats)->page_bytes;
  const double per_page = static_cast<double>(budget.bytes) / pool.pages_per_block();
  const double free = per_page - static_cast<double>(num_sealed) * cold;
  if (hot <= cold || free <= 0) return 0;
  return std::min(num_sealed, static_cast<int64_t>(free / (hot - cold)));
}

Status demote_pages(KvPool& pool, KvSequenceId sequence, const PageMass& mass,
                    const ResidentBudget& budget, ResidencyStats& stats,
                    std::vector<AuditReasons>* reasons, std::span<const uint8_t> client_pins) {
  if (reasons != nullptr) {
    const auto num_sealed = static_cast<size_t>(pool.length(sequence) / pool.block_tokens());
    reasons->assign(num_sealed, {});
  }
  const std::span<AuditReasons> audit =
      reasons != nullptr ? std::span(*reasons) : std::span<AuditReasons>();
  if (budget.kind == ResidentBudget::Kind::kAll) return {};
  ++stats.decisions;
  stats.hot_pages = 0;
  stats.cold_pages = 0;
  stats.pinned_pages = 0;
  for (int layer = 0; layer < pool.num_layers(); ++layer) {
    for (int head = 0; head < pool.num_kv_heads(layer); ++head) {
      const auto page = static_cast<size_t>(pool.page_index(layer, head));
      const std::span<const float> own =
          page < mass.size() ? std::span<const float>(mass[page]) : std::span<const float>();
      IKV_RETURN_IF_ERROR(HeadResidency(pool, sequence, layer, head, own, client_pins)
                              .demote(budget, stats, audit));
    }
  }
  return {};
}

}  // namespace ikv
