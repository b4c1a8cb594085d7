#include "eval_hit_meter.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "attention/paged_attention.h"
#include "intent/intent_builder.h"

namespace ikv {
namespace {

constexpr int32_t kRecentTokens = 128;

// Mean over the group of the softmax over `logits` ([group][size]).
std::vector<double> group_mass(std::span<const float> logits, size_t group, size_t size) {
  std::vector<double> mass(size, 0.0);
  std::vector<double> row(size);
  for (size_t g = 0; g < group; ++g) {
    const std::span<const float> own = logits.subspan(g * size, size);
    const float highest = *std::max_element(own.begin(), own.end());
    double sum = 0;
    for (size_t i = 0; i < size; ++i) {
      row[i] = static_cast<double>(std::exp(own[i] - highest));
      sum += row[i];
    }
    for (size_t i = 0; i < size; ++i) mass[i] += row[i] / (sum * static_cast<double>(group));
  }
  return mass;
}

}  // namespace

HitMeter::HitMeter(const Model& model, const KeyCodebooks* codebooks, ThreadPool& threads,
                   const ReplayLane& lane, const HitOptions& options)
    : model_(model), codebooks_(codebooks), threads_(threads), lane_(lane), options_(options) {
  Policy& oracle = policies_.emplace_back();
  oracle.name = "oracle (the reply)";
  oracle.oracle = true;
  add_policy("span, exact", "exact", IntentChoice::kSpan);
  add_policy("first hidden, exact", "exact", IntentChoice::kFirst);
  add_policy("memory, exact", "exact", IntentChoice::kMemory);
  add_policy("span+memory, exact", "exact", IntentChoice::kSpanMemory);
  add_policy("recent", "recent", IntentChoice::kSpan);
  add_policy("LRU", "lru", IntentChoice::kSpan);
  add_policy("random", "random", IntentChoice::kSpan);
  for (const char* scorer : {"code", "moment", "box", "minmax", "dot", "cosine", "lexical"}) {
    add_policy(std::string("span, ") + scorer, scorer, IntentChoice::kSpan);
  }
  for (int layer = 0; layer < model.config().num_layers; layer += options.layer_stride) {
    for (int head = 0; head < model.attention_spec(layer).num_kv_heads; ++head) {
      heads_.push_back({layer, head});
    }
  }
}

void HitMeter::add_policy(std::string name, std::string_view scorer, IntentChoice intent) {
  Policy policy;
  policy.name = std::move(name);
  IKV_CHECK(parse_page_scorer(scorer, policy.pages).ok());
  policy.pages.intent = intent;
  policies_.push_back(std::move(policy));
}

std::vector<std::string> HitMeter::names() const {
  std::vector<std::string> names;
  names.reserve(policies_.size());
  for (const Policy& policy : policies_) names.push_back(policy.name);
  return names;
}

void HitMeter::begin_session() {
  for (Policy& policy : policies_) policy.history = {};
}

Status HitMeter::begin_turn(bool measured) {
  const KvPool& pool = lane_.pool();
  measured_ = measured;
  num_samples_ = 0;
  num_pages_ = static_cast<size_t>(pool.length(lane_.sequence()) / pool.block_tokens());
  wanted_.assign(heads_.size(), {});
  for (Wanted& wanted : wanted_) {
    wanted.tokens.resize(num_pages_);
    wanted.mass.resize(num_pages_);
    wanted.last_step.resize(num_pages_);
  }
  for (Policy& policy : policies_) {
    if (policy.oracle) continue;
    const TurnIntent intent(model_, pool, codebooks_, threads_, policy.pages,
                            options_.layer_stride);
    if (measured && num_pages_ > 0) {
      IKV_ASSIGN_OR_RETURN(policy.ranked, intent.rank(lane_.turn(), policy.history));
    }
    // LRU here knows the replies' own wants; see end_turn().
    if (policy.pages.lru) continue;
    IKV_RETURN_IF_ERROR(intent.remember(lane_.turn(), policy.history));
  }
  return {};
}

void HitMeter::sample_step() {
  if (num_pages_ == 0) return;
  const IntentQueries query = lane_.reply_queries().last(1);
  threads_.parallel_for(heads_.size(),
                        [&](size_t i, int) { sample_head(heads_[i], query, wanted_[i]); });
  ++num_samples_;
}

void HitMeter::sample_head(const Head& head, const IntentQueries& query, Wanted& wanted) const {
  const KvPool& pool = lane_.pool();
  const AttentionSpec& spec = model_.attention_spec(head.layer);
  const auto group = static_cast<size_t>(spec.num_heads / spec.num_kv_heads);
  const auto block_tokens = static_cast<size_t>(pool.block_tokens());
  DecodeJob job;
  job.position = pool.length(lane_.sequence()) - 1;
  const std::vector<float> q =
      rotated_group(query, static_cast<size_t>(head.layer), spec, head.kv_head, job.position);
  job.q = q.data();
  std::vector<KvPageView> views;
  pool.append_views(lane_.sequence(), head.layer, head.kv_head, views);
  job.pages = views;
  const auto size = static_cast<size_t>(job.position) + 1;
  std::vector<PageEntry> entries(size);
  std::iota(entries.begin(), entries.end(), 0u);
  std::vector<float> logits(group * size);
  score_entries(spec, job, entries, logits.data(), size);
  const std::vector<double> mass = group_mass(logits, group, size);

  const size_t history = num_pages_ * block_tokens;
  const auto num_wanted = std::max<size_t>(
      1, static_cast<size_t>(options_.wanted_share * static_cast<double>(history)));
  std::vector<uint32_t> order(entries.begin(),
                              entries.begin() + static_cast<std::ptrdiff_t>(history));
  std::nth_element(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(num_wanted - 1), order.end(),
      [&](uint32_t a, uint32_t b) { return mass[a] != mass[b] ? mass[a] > mass[b] : a > b; });
  order.resize(num_wanted);
  double sum = 0;
  for (const uint32_t token : order) sum += mass[token];
  for (const uint32_t token : order) {
    const size_t page = token / block_tokens;
    wanted.tokens[page] += 1.0 / static_cast<double>(num_wanted);
    if (sum > 0) wanted.mass[page] += mass[token] / sum;
    wanted.last_step[page] = static_cast<float>(job.position);
  }
}

std::vector<std::array<HitShare, kHitBudgets.size()>> HitMeter::end_turn() {
  std::vector<std::array<HitShare, kHitBudgets.size()>> hits;
  if (measured_ && num_samples_ > 0) {
    const PageLists oracle = wanted_mass();
    for (const Policy& policy : policies_) {
      auto& of_policy = hits.emplace_back();
      for (size_t i = 0; i < kHitBudgets.size(); ++i) {
        of_policy[i] = count_hits(policy.oracle ? oracle : policy.ranked, kHitBudgets[i]);
      }
    }
  }
  for (Policy& policy : policies_) {
    if (!policy.pages.lru) continue;
    auto& stamps = policy.history.last_wanted;
    stamps.resize(static_cast<size_t>(lane_.pool().pages_per_block()));
    for (size_t h = 0; h < heads_.size(); ++h) {
      const auto page =
          static_cast<size_t>(lane_.pool().page_index(heads_[h].layer, heads_[h].kv_head));
      stamps[page].resize(std::max(stamps[page].size(), num_pages_), 0.0f);
      for (size_t i = 0; i < num_pages_; ++i) {
        stamps[page][i] = std::max(stamps[page][i], wanted_[h].last_step[i]);
      }
    }
  }
  return hits;
}

PageLists HitMeter::wanted_mass() const {
  PageLists lists(static_cast<size_t>(lane_.pool().pages_per_block()));
  for (size_t h = 0; h < heads_.size(); ++h) {
    const auto page =
        static_cast<size_t>(lane_.pool().page_index(heads_[h].layer, heads_[h].kv_head));
    lists[page].assign(wanted_[h].mass.begin(), wanted_[h].mass.end());
  }
  return lists;
}

bool HitMeter::pinned(size_t page) const {
  const auto recent = static_cast<size_t>(kRecentTokens / lane_.pool().block_tokens());
  return page == 0 || page + recent >= num_pages_;
}

// As level 1 chooses: pins first, then by rank, ties to the later page.
std::vector<uint8_t> HitMeter::choose_hot(const std::vector<float>& ranked, double budget) const {
  std::vector<uint8_t> hot(num_pages_, 0);
  std::vector<size_t> order;
  auto left = static_cast<int64_t>(budget * static_cast<double>(num_pages_));
  for (size_t page = 0; page < num_pages_; ++page) {
    if (pinned(page)) {
      hot[page] = 1;
      --left;
    } else {
      order.push_back(page);
    }
  }
  const auto value = [&](size_t page) { return page < ranked.size() ? ranked[page] : 0.0f; };
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return value(a) != value(b) ? value(a) > value(b) : a > b; });
  for (size_t i = 0; i < order.size() && static_cast<int64_t>(i) < left; ++i) hot[order[i]] = 1;
  return hot;
}

HitShare HitMeter::count_hits(const PageLists& ranked, double budget) const {
  HitShare found;
  HitShare all;
  for (size_t h = 0; h < heads_.size(); ++h) {
    const auto index =
        static_cast<size_t>(lane_.pool().page_index(heads_[h].layer, heads_[h].kv_head));
    const std::vector<uint8_t> hot = choose_hot(ranked[index], budget);
    for (size_t page = 0; page < num_pages_; ++page) {
      const double tokens = wanted_[h].tokens[page];
      const double mass = wanted_[h].mass[page];
      const double free = pinned(page) ? 0.0 : 1.0;
      all.tokens += tokens;
      all.mass += mass;
      all.free_tokens += free * tokens;
      all.free_mass += free * mass;
      if (hot[page] == 0) continue;
      found.tokens += tokens;
      found.mass += mass;
      found.free_tokens += free * tokens;
      found.free_mass += free * mass;
    }
  }
  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 1.0; };
  return {share(found.tokens, all.tokens), share(found.mass, all.mass),
          share(found.free_tokens, all.free_tokens), share(found.free_mass, all.free_mass)};
}

}  // namespace ikv
