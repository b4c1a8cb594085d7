#include "engine/page_ranking.h"

#include <algorithm>
#include <memory>
#include <numeric>

#include "core/dot.h"
#include "intent/intent_builder.h"
#include "kv/page_digest.h"
#include "quant/kv_codec.h"
#include "relevance/group_mass.h"

namespace ikv {
namespace {

// Mean absolute deviation of a normal distribution, in standard deviations.
constexpr float kAbsoluteOfNormal = 0.7978846f;

// Logits from the keys as they are stored. One caller at a time.
class PoolKeyLogits : public PageTokenLogits {
 public:
  PoolKeyLogits(const KvPool& pool, std::span<const BlockId> blocks, int layer, int kv_head)
      : pool_(pool), blocks_(blocks), layer_(layer), kv_head_(kv_head) {}

  const float* read_keys(int page) const {
    const auto dim = static_cast<size_t>(pool_.head_dim(layer_));
    keys_.resize(static_cast<size_t>(pool_.block_tokens()) * dim);
    const BlockId block = blocks_[static_cast<size_t>(page)];
    read_kv_rows(pool_.page_layout(block, layer_, kv_head_),
                 pool_.page_data(block, layer_, kv_head_), 0, pool_.block_tokens(), keys_.data(),
                 nullptr, dim);
    return keys_.data();
  }

  void page_logits(int page, const QueryGroup& group, size_t stride, float* out) const override {
    const auto dim = static_cast<size_t>(group.head_dim);
    const float* keys = read_keys(page);
    for (size_t row = 0; row < group.num_rows(); ++row) {
      for (size_t t = 0; t < static_cast<size_t>(pool_.block_tokens()); ++t) {
        out[row * stride + t] = group.scale * dot_product(group.row(row), keys + t * dim, dim);
      }
    }
  }

 private:
  const KvPool& pool_;
  std::span<const BlockId> blocks_;
  int layer_;
  int kv_head_;
  mutable std::vector<float> keys_;
};

// Logits from key codes, by tables that are built once for the group.
class PoolCodeLogits : public PageTokenLogits {
 public:
  PoolCodeLogits(const KvPool& pool, std::span<const BlockId> blocks, const PageRankJob& job,
                 const QueryGroup& group)
      : pool_(pool), blocks_(blocks), layer_(job.layer), kv_head_(job.kv_head) {
    std::vector<float> scaled(group.queries.begin(), group.queries.end());
    for (float& x : scaled) x *= group.scale;
    build_scan_tables(job.codebooks->head(layer_, kv_head_), group.head_dim, scaled.data(),
                      static_cast<size_t>(group.head_dim), static_cast<int>(group.num_rows()),
                      tables_);
  }

  void page_logits(int page, const QueryGroup&, size_t stride, float* out) const override {
    const BlockId block = blocks_[static_cast<size_t>(page)];
    scan_key_codes(tables_, pool_.page_codes(block, layer_, kv_head_), pool_.block_tokens(), out,
                   stride);
  }

 private:
  const KvPool& pool_;
  std::span<const BlockId> blocks_;
  int layer_;
  int kv_head_;
  KeyScanTables tables_;
};

// What a scorer may ask of one head's pages; only what it asks for is gathered.
class HeadPages {
 public:
  HeadPages(const KvPool& pool, const PageRankJob& job)
      : pool_(pool),
        job_(job),
        blocks_(pool.blocks(job.sequence)
                    .first(static_cast<size_t>(pool.length(job.sequence) / pool.block_tokens()))),
        sizes_(blocks_.size(), pool.block_tokens()) {
    data_.head_dim = pool.head_dim(job.layer);
    data_.num_tokens = sizes_;
  }
  HeadPages(const HeadPages&) = delete;
  HeadPages& operator=(const HeadPages&) = delete;

  Status gather(const QueryGroup& group) {
    switch (job_.scorer) {
      case ScorerKind::kCosine:
      case ScorerKind::kDot:
      case ScorerKind::kBox:
      case ScorerKind::kMoment:
        return read_digests();
      case ScorerKind::kMinMax:
        keys_ = std::make_unique<PoolKeyLogits>(pool_, blocks_, job_.layer, job_.kv_head);
        read_extremes();
        return {};
      case ScorerKind::kExact:
        keys_ = std::make_unique<PoolKeyLogits>(pool_, blocks_, job_.layer, job_.kv_head);
        data_.key_logits = keys_.get();
        return {};
      case ScorerKind::kCode:
        if (job_.codebooks == nullptr || pool_.config().code_bytes_per_token == nullptr) {
          return invalid_argument("page scorer 'code' needs key codes, and none are kept");
        }
        codes_ = std::make_unique<PoolCodeLogits>(pool_, blocks_, job_, group);
        data_.code_logits = codes_.get();
        return {};
      case ScorerKind::kLexical:
        for (const BlockId block : blocks_) {
          const auto tokens = pool_.block_tokens_of(block);
          tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
        }
        data_.tokens = tokens_;
        return {};
      case ScorerKind::kRandom:
      case ScorerKind::kRecent:
        return {};
    }
    return {};
  }

  size_t num_pages() const { return blocks_.size(); }
  const PageData& data() const { return data_; }

 private:
  Status read_digests() {
    const auto dim = static_cast<size_t>(data_.head_dim);
    mean_.resize(blocks_.size() * dim);
    deviation_.resize(blocks_.size() * dim);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const std::byte* digest = pool_.page_digest(blocks_[i], job_.layer, job_.kv_head);
      if (digest == nullptr) {
        return invalid_argument("page scorer '" + std::string(scorer_name(job_.scorer)) +
                                "' needs page digests, and none are kept");
      }
      PageMoments moments{mean_.data() + i * dim, deviation_.data() + i * dim, 0};
      read_page_digest(digest, data_.head_dim, moments);
    }
    data_.mean = mean_;
    data_.deviation = deviation_;
    if (job_.scorer == ScorerKind::kBox) {
      absolute_ = deviation_;
      for (float& x : absolute_) x *= kAbsoluteOfNormal;
      data_.absolute_deviation = absolute_;
    }
    return {};
  }

  void read_extremes() {
    const auto dim = static_cast<size_t>(data_.head_dim);
    minimum_.resize(blocks_.size() * dim);
    maximum_.resize(blocks_.size() * dim);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      page_min_max(keys_->read_keys(static_cast<int>(i)), dim, pool_.block_tokens(), data_.head_dim,
                   minimum_.data() + i * dim, maximum_.data() + i * dim);
    }
    data_.minimum = minimum_;
    data_.maximum = maximum_;
  }

  const KvPool& pool_;
  const PageRankJob& job_;
  std::span<const BlockId> blocks_;
  std::vector<int32_t> sizes_;
  PageData data_;
  std::vector<float> mean_, deviation_, absolute_, minimum_, maximum_;
  std::vector<TokenId> tokens_;
  std::unique_ptr<PoolKeyLogits> keys_;
  std::unique_ptr<PoolCodeLogits> codes_;
};

}  // namespace

Result<std::vector<float>> rank_pages(const KvPool& pool, const PageRankJob& job) {
  const AttentionSpec& spec = *job.spec;
  const LogicalPos position = pool.length(job.sequence);
  std::vector<float> queries;
  QueryGroup group;
  group.head_dim = spec.head_dim;
  group.group_size = spec.num_heads / spec.num_kv_heads;
  group.scale = spec.scale;
  group.tokens = job.words;
  if (job.intent != nullptr) {
    queries = rotated_group(job.intent->queries, static_cast<size_t>(job.layer), spec, job.kv_head,
                            position);
    group.num_queries = static_cast<int>(job.intent->queries.num_rows);
    group.weights = job.intent->weights;
  } else {  // one query that no scorer looks at
    queries.assign(static_cast<size_t>(group.group_size * spec.head_dim), 0.0f);
    group.num_queries = 1;
  }
  group.queries = queries;
  HeadPages pages(pool, job);
  std::vector<float> mass(pages.num_pages());
  if (mass.empty()) return mass;
  IKV_RETURN_IF_ERROR(pages.gather(group));
  std::vector<int32_t> all(pages.num_pages());
  std::iota(all.begin(), all.end(), 0);
  const auto scorer = make_page_scorer(job.scorer, job.seed);
  IKV_RETURN_IF_ERROR(score_one_stage(*scorer, pages.data(), group, all, GroupReduce::kMean, mass));
  if (spec.window_tokens > 0 && position > spec.window_tokens) {
    const auto gone = static_cast<size_t>((position - spec.window_tokens) / pool.block_tokens());
    std::fill_n(mass.begin(), std::min(gone, mass.size()), 0.0f);
  }
  return mass;
}

}  // namespace ikv
