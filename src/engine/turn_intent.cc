#include "engine/turn_intent.h"

#include <algorithm>
#include <utility>

namespace ikv {
namespace {

constexpr uint64_t kRandomSeed = 20260101;
// Share of the pages that count as wanted by a span, for LRU.
constexpr double kWantedShare = 0.25;

// Rows' mean as one row: its cosine to another mean is that of the rows' means.
IntentQueries mean_row(const IntentQueries& queries) {
  IntentQueries mean;
  mean.shapes = queries.shapes;
  mean.num_rows = 1;
  for (size_t layer = 0; layer < queries.layers.size(); ++layer) {
    const size_t width = queries.shapes[layer].width();
    std::vector<float> sum(width, 0.0f);
    for (size_t r = 0; r < queries.num_rows; ++r) {
      const float* row = queries.row(layer, r);
      for (size_t i = 0; i < width; ++i) sum[i] += row[i];
    }
    for (float& x : sum) x /= static_cast<float>(queries.num_rows);
    mean.layers.push_back(std::move(sum));
  }
  return mean;
}

}  // namespace

std::vector<QueryShape> query_shapes(const Model& model) {
  std::vector<QueryShape> shapes;
  for (int layer = 0; layer < model.config().num_layers; ++layer) {
    const AttentionSpec& spec = model.attention_spec(layer);
    shapes.push_back({spec.num_heads, spec.head_dim});
  }
  return shapes;
}

size_t IntentHistory::size_bytes() const {
  size_t floats = 0;
  for (const auto& layer : last_mean.layers) floats += layer.size();
  for (const auto& list : last_wanted) floats += list.size();
  return floats * sizeof(float) + (memory ? memory->size_bytes() : 0);
}

TurnIntent::TurnIntent(const Model& model, const KvPool& pool, const KeyCodebooks* codebooks,
                       ThreadPool& threads, const PagePolicy& policy, int layer_stride)
    : model_(model),
      pool_(pool),
      codebooks_(codebooks),
      threads_(threads),
      policy_(policy),
      layer_stride_(layer_stride) {}

Result<PageLists> TurnIntent::rank(const TurnSources& turn, const IntentHistory& history) const {
  if (policy_.lru) return rank_lru(turn, history);
  if (policy_.is_span_mass() && turn.stated == nullptr && turn.span_mass != nullptr) {
    return *turn.span_mass;
  }
  std::optional<Intent> intent;
  if (policy_.asks_queries()) {
    IKV_ASSIGN_OR_RETURN(intent, gather_intent(turn, history));
  }
  std::vector<PageRankJob> jobs;
  for (int layer = 0; layer < pool_.num_layers(); layer += layer_stride_) {
    for (int head = 0; head < pool_.num_kv_heads(layer); ++head) {
      PageRankJob job;
      job.scorer = policy_.scorer;
      job.sequence = turn.sequence;
      job.layer = layer;
      job.kv_head = head;
      job.spec = &model_.attention_spec(layer);
      job.intent = intent ? &*intent : nullptr;
      job.words = turn.words;
      job.codebooks = codebooks_;
      job.seed = kRandomSeed + static_cast<uint64_t>(pool_.page_index(layer, head));
      jobs.push_back(job);
    }
  }
  PageLists lists(static_cast<size_t>(pool_.pages_per_block()));
  std::vector<Status> failures(jobs.size());
  threads_.parallel_for(jobs.size(), [&](size_t i, int) {
    auto mass = rank_pages(pool_, jobs[i]);
    const auto page = static_cast<size_t>(pool_.page_index(jobs[i].layer, jobs[i].kv_head));
    if (mass.ok()) {
      lists[page] = std::move(mass).value();
    } else {
      failures[i] = mass.error();
    }
  });
  for (const Status& failure : failures) IKV_RETURN_IF_ERROR(failure);
  return lists;
}

Result<Intent> TurnIntent::gather_intent(const TurnSources& turn,
                                         const IntentHistory& history) const {
  IntentMix mix = intent_mix(policy_.intent);
  std::vector<WeightedQueries> sources;
  if (mix.memory > 0 && history.memory) sources.push_back(history.memory->recall());
  // A source that has nothing to say leaves the turn to its span.
  const bool remembers = !sources.empty() && sources.front().queries.num_rows > 0;
  const bool alone = mix.span == 0 && mix.first_hidden == 0;
  if (alone && !(mix.memory > 0 && remembers) && !(mix.stated > 0 && turn.stated != nullptr)) {
    mix.span = 1;
  }
  if (mix.span > 0) {
    sources.push_back({IntentSource::kSpan, turn.span->last(kSpanQueries), {}});
  }
  if (mix.first_hidden > 0) {
    sources.push_back({IntentSource::kFirstHidden, turn.span->last(1), {}});
  }
  if (mix.stated > 0 && turn.stated != nullptr) {
    sources.push_back({IntentSource::kStated, *turn.stated, {}});
  }
  return build_intent(mix, sources);
}

Status TurnIntent::ensure_memory(IntentHistory& history) const {
  if (history.memory) return {};
  IKV_ASSIGN_OR_RETURN(history.memory, IntentMemory::create(query_shapes(model_), {}));
  return {};
}

Result<std::optional<float>> TurnIntent::remember(const TurnSources& turn,
                                                  IntentHistory& history) const {
  std::optional<float> similarity;
  const IntentQueries last = turn.span->last(kSpanQueries);
  if (last.num_rows > 0) {
    IntentQueries mean = mean_row(last);
    if (history.last_mean.num_rows > 0) {
      IKV_ASSIGN_OR_RETURN(similarity, intent_similarity(mean, history.last_mean));
    }
    history.last_mean = std::move(mean);
  }
  if (uses_memory()) {
    IKV_RETURN_IF_ERROR(ensure_memory(history));
    history.memory->end_turn();
    IKV_RETURN_IF_ERROR(history.memory->remember(turn.phase, last));
  }
  if (policy_.lru && turn.span_mass != nullptr) note_wanted(turn, history);
  return similarity;
}

Status TurnIntent::remember_reply(IntentPhase phase, const QueryCollector& queries,
                                  IntentHistory& history) const {
  if (!uses_memory() || queries.num_rows() == 0) return {};
  IKV_RETURN_IF_ERROR(ensure_memory(history));
  return history.memory->remember(phase, queries.last(kSpanQueries));
}

// A page enters as wanted when it is written.
PageLists TurnIntent::rank_lru(const TurnSources& turn, const IntentHistory& history) const {
  const int block_tokens = pool_.block_tokens();
  const auto num_sealed = static_cast<size_t>(pool_.length(turn.sequence) / block_tokens);
  PageLists lists(static_cast<size_t>(pool_.pages_per_block()));
  for (size_t page = 0; page < lists.size(); ++page) {
    for (size_t i = 0; i < num_sealed; ++i) {
      auto stamp = static_cast<float>((i + 1) * static_cast<size_t>(block_tokens));
      if (page < history.last_wanted.size() && i < history.last_wanted[page].size()) {
        stamp = std::max(stamp, history.last_wanted[page][i]);
      }
      lists[page].push_back(stamp);
    }
  }
  return lists;
}

void TurnIntent::note_wanted(const TurnSources& turn, IntentHistory& history) const {
  const PageLists& mass = *turn.span_mass;
  const auto now = static_cast<float>(pool_.length(turn.sequence));
  history.last_wanted.resize(mass.size());
  for (size_t page = 0; page < mass.size(); ++page) {
    const size_t count = mass[page].size();
    const auto wanted = static_cast<size_t>(static_cast<double>(count) * kWantedShare);
    auto& stamps = history.last_wanted[page];
    stamps.resize(std::max(stamps.size(), count), 0.0f);
    if (wanted == 0) continue;
    std::vector<float> sorted = mass[page];
    const auto border = sorted.begin() + static_cast<std::ptrdiff_t>(count - wanted);
    std::nth_element(sorted.begin(), border, sorted.end());
    for (size_t i = 0; i < count; ++i) {
      if (mass[page][i] >= *border) stamps[i] = now;
    }
  }
}

}  // namespace ikv
