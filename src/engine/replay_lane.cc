#include "engine/replay_lane.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "engine/pool_setup.h"

namespace ikv {
Result<std::unique_ptr<ReplayLane>> ReplayLane::create(const Model& model,
                                                       const KeyCodebooks* codebooks,
                                                       ThreadPool& threads,
                                                       const ReplayConfig& config,
                                                       int32_t max_tokens) {
  std::unique_ptr<ReplayLane> lane(new ReplayLane());
  lane->config_ = config;
  KvPoolConfig pool =
      make_pool_config(model, config.formats, config.block_tokens, codebooks != nullptr,
                       config.policy.demotes(), config.observe || config.policy.asks_digests());
  pool.share_prefixes = false;
  // Bounded by arithmetic, not by the user: f32 pages of all tokens and as much again.
  size_t token_bytes = 0;
  for (const KvLayerShape& layer : pool.layers) {
    token_bytes +=
        static_cast<size_t>(layer.num_kv_heads) * static_cast<size_t>(layer.head_dim) * 8;
  }
  const size_t cap = (static_cast<size_t>(max_tokens) + 1024) * token_bytes * 2 + (64u << 20);
  lane->ledger_ = std::make_unique<MemoryLedger>(cap);
  IKV_ASSIGN_OR_RETURN(lane->pool_, KvPool::create(std::move(pool), lane->ledger_.get()));
  lane->runner_ = std::make_unique<StepRunner>(model, *lane->pool_, codebooks, threads);
  lane->intent_ =
      std::make_unique<TurnIntent>(model, *lane->pool_, codebooks, threads, config.policy.pages);
  lane->span_queries_ = std::make_unique<QueryCollector>(query_shapes(model), kSpanQueries);
  lane->reply_queries_ = std::make_unique<QueryCollector>(query_shapes(model), kSpanQueries);
  return lane;
}

ReplayLane::~ReplayLane() = default;

Status ReplayLane::begin() {
  if (open_) {
    runner_->forget(sequence_);
    pool_->close(sequence_);
  }
  open_ = false;
  cost_ = {};
  history_ = {};
  turn_ = {};
  span_queries_->begin_span();
  reply_queries_->begin_span();
  IKV_ASSIGN_OR_RETURN(sequence_, pool_->open({config_.policy.id(), 0}));
  open_ = true;
  return {};
}

Status ReplayLane::prefill(std::span<const TokenId> tokens, bool turn_starts, IntentPhase phase) {
  const int64_t start = now_us();
  const std::span<const TokenId> words = tokens;
  if (notes_turns()) {
    IKV_RETURN_IF_ERROR(intent_->remember_reply(IntentPhase::kThink, *reply_queries_, history_));
    span_queries_->begin_span();
    reply_queries_->begin_span();
  }
  while (!tokens.empty()) {
    const size_t count = std::min(tokens.size(), static_cast<size_t>(config_.chunk_tokens));
    StepRows rows;
    rows.sequence = sequence_;
    rows.tokens = tokens.first(count);
    tokens = tokens.subspan(count);
    if (tokens.empty()) rows.num_logit_rows = 1;
    if (notes_turns()) rows.queries = span_queries_.get();
    if (tokens.empty() && turn_starts && notes_turns()) {
      rows.num_mass_rows = std::min(static_cast<int32_t>(count), kSpanQueries);
    }
    IKV_RETURN_IF_ERROR(runner_->run({&rows, 1}));
    cost_.evaluated_tokens += count;
  }
  note_memory();
  if (turn_starts && notes_turns()) IKV_RETURN_IF_ERROR(start_turn(words, phase));
  cost_.prefill_us += now_us() - start;
  return {};
}

Status ReplayLane::start_turn(std::span<const TokenId> words, IntentPhase phase) {
  turn_ = {};
  turn_.sequence = sequence_;
  turn_.phase = phase;
  turn_.span_mass = &runner_->attention().page_mass(0);
  turn_.span = span_queries_.get();
  turn_.words = words;
  if (config_.policy.demotes()) {
    IKV_ASSIGN_OR_RETURN(const PageLists mass, intent_->rank(turn_, history_));
    IKV_RETURN_IF_ERROR(
        demote_pages(*pool_, sequence_, mass, config_.policy.resident, cost_.resident));
    note_memory();
  }
  IKV_ASSIGN_OR_RETURN(const auto similarity, intent_->remember(turn_, history_));
  if (similarity) {
    cost_.similarity_sum += static_cast<double>(*similarity);
    ++cost_.num_similarities;
  }
  return {};
}

Status ReplayLane::decode(TokenId token) {
  const int64_t start = now_us();
  StepRows rows;
  rows.sequence = sequence_;
  rows.tokens = {&token, 1};
  rows.decode = true;
  rows.counter = counter_;
  rows.num_logit_rows = 1;
  rows.attend = config_.policy.prunes() ? &config_.policy.attend : nullptr;
  rows.stats = &cost_.attend;
  if (notes_turns()) rows.queries = reply_queries_.get();
  IKV_RETURN_IF_ERROR(runner_->run({&rows, 1}));
  cost_.decode_us += now_us() - start;
  ++cost_.decoded_tokens;
  note_memory();
  return {};
}

Result<double> ReplayLane::ask(std::span<const TokenId> question, std::span<const TokenId> answer) {
  const auto pages = copy_hot_pages();
  const ReplayCost cost = cost_;
  const IntentHistory history = history_;
  const QueryCollector span = *span_queries_;
  const QueryCollector reply = *reply_queries_;
  const KvSequenceId own = sequence_;
  IKV_ASSIGN_OR_RETURN(sequence_, pool_->fork(own, pool_->length(own)));
  auto nll = answer_nll(question, answer);
  runner_->forget(sequence_);
  pool_->close(sequence_);
  sequence_ = own;
  cost_ = cost;
  history_ = history;
  *span_queries_ = span;
  *reply_queries_ = reply;
  turn_ = {};
  IKV_RETURN_IF_ERROR(restore(pages));
  return nll;
}

Result<double> ReplayLane::answer_nll(std::span<const TokenId> question,
                                      std::span<const TokenId> answer) {
  IKV_RETURN_IF_ERROR(prefill(question, true));
  double sum = 0;
  for (size_t i = 0; i < answer.size(); ++i) {
    const std::span<const float> row = logits();
    const double highest = static_cast<double>(*std::max_element(row.begin(), row.end()));
    double total = 0;
    for (const float x : row) total += std::exp(static_cast<double>(x) - highest);
    sum += highest + std::log(total) - static_cast<double>(row[static_cast<size_t>(answer[i])]);
    if (i + 1 < answer.size()) IKV_RETURN_IF_ERROR(decode(answer[i]));
  }
  return sum / static_cast<double>(std::max<size_t>(1, answer.size()));
}

// A fork shares sealed blocks, and what level 1 does to a block all sharers see.
std::vector<ReplayLane::HotPage> ReplayLane::copy_hot_pages() const {
  std::vector<HotPage> pages;
  if (!config_.policy.demotes()) return pages;
  for (const BlockId block : pool_->blocks(sequence_)) {
    if (!pool_->block_sealed(block)) continue;
    for (int layer = 0; layer < pool_->num_layers(); ++layer) {
      for (int head = 0; head < pool_->num_kv_heads(layer); ++head) {
        if (pool_->page_state(block, layer, head) != KvPageState::kHot) continue;
        const std::byte* data = std::as_const(*pool_).page_data(block, layer, head);
        pages.push_back(
            {block, layer, head, {data, data + pool_->page_layout(block, layer, head).page_bytes}});
      }
    }
  }
  return pages;
}

Status ReplayLane::restore(const std::vector<HotPage>& pages) {
  for (const HotPage& page : pages) {
    if (pool_->page_state(page.block, page.layer, page.kv_head) == KvPageState::kHot) continue;
    IKV_RETURN_IF_ERROR(pool_->set_page(page.block, page.layer, page.kv_head,
                                        pool_->config().formats, KvPageState::kHot,
                                        [&](const std::byte*, std::byte* to) {
                                          std::copy(page.bytes.begin(), page.bytes.end(), to);
                                        }));
  }
  return {};
}

size_t ReplayLane::kv_bytes() const {
  const KvPoolStats stats = pool_->stats();
  // Pages by what lives in them: the arena grows by whole extents, which at one session's size
  // would count the extents' free rest.
  return stats.live_page_bytes + ledger_->used_bytes(MemoryUse::kCodes) +
         ledger_->used_bytes(MemoryUse::kDigests) + ledger_->used_bytes(MemoryUse::kTables);
}

void ReplayLane::note_memory() {
  cost_.peak_kv_bytes = std::max(cost_.peak_kv_bytes, kv_bytes());
}

}  // namespace ikv
