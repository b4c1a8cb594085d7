#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <vector>

#include "relevance/scorers.h"

namespace ikv {
namespace {

constexpr float kHalfLifeTokens = 512.0f;

// First token of each page, and the end.
std::vector<size_t> page_begins(const PageData& data) {
  std::vector<size_t> begins = {0};
  for (const int32_t count : data.num_tokens) {
    begins.push_back(begins.back() + static_cast<size_t>(count));
  }
  return begins;
}

// Scores that do not depend on the row: computed once, copied to all.
class RowlessScorer : public PageScorer {
 private:
  Status score_checked(const PageData& data, const QueryGroup& group,
                       std::span<const int32_t> pages, float* log_mass) const override {
    IKV_RETURN_IF_ERROR(score_pages(data, group, pages, log_mass));
    for (size_t row = 1; row < group.num_rows(); ++row) {
      std::copy_n(log_mass, pages.size(), log_mass + row * pages.size());
    }
    return {};
  }
  virtual Status score_pages(const PageData& data, const QueryGroup& group,
                             std::span<const int32_t> pages, float* log_mass) const = 0;
};

// Mass of a page: the inverse document frequencies (Robertson, Sparck Jones 1976) of its tokens
// that the intent has too, each distinct one counted with log(1 + how often), plus a little for
// every token, so that pages without a common word have a mass and longer ones more.
class LexicalScorer : public RowlessScorer {
 public:
  ScorerKind kind() const override { return ScorerKind::kLexical; }

 private:
  Status score_pages(const PageData& data, const QueryGroup& group, std::span<const int32_t> pages,
                     float* log_mass) const override {
    if (data.tokens.empty() && data.num_pages() > 0) {
      return invalid_argument("relevance: scorer 'lexical' needs the pages' token ids");
    }
    const std::vector<size_t> begins = page_begins(data);
    // Of each of the intent's tokens: in how many pages it is.
    std::unordered_map<TokenId, int> pages_with;
    for (const TokenId token : group.tokens) pages_with.emplace(token, 0);
    std::unordered_map<TokenId, int> counts;
    const auto count_page = [&](size_t page) {
      counts.clear();
      for (size_t t = begins[page]; t < begins[page + 1]; ++t) {
        if (pages_with.contains(data.tokens[t])) ++counts[data.tokens[t]];
      }
    };
    for (size_t page = 0; page < data.num_pages(); ++page) {
      count_page(page);
      for (const auto& [token, times] : counts) ++pages_with[token];
    }
    for (const int32_t page : pages) {
      count_page(static_cast<size_t>(page));
      // Sorted, so that the sum does not depend on the order of a hash table.
      std::vector<std::pair<TokenId, int>> sorted(counts.begin(), counts.end());
      std::sort(sorted.begin(), sorted.end());
      double mass = 0.01 * static_cast<double>(data.num_tokens[static_cast<size_t>(page)]);
      for (const auto& [token, times] : sorted) {
        const double rarity =
            std::log1p(static_cast<double>(data.num_pages()) / (0.5 + pages_with[token]));
        mass += rarity * std::log1p(times);
      }
      *log_mass++ = static_cast<float>(std::log(mass));
    }
    return {};
  }
};

// Exponentially distributed, so that masses are positive and normalised ones uniform on the
// simplex.
class RandomScorer : public RowlessScorer {
 public:
  explicit RandomScorer(uint64_t seed) : seed_(seed) {}
  ScorerKind kind() const override { return ScorerKind::kRandom; }

 private:
  Status score_pages(const PageData&, const QueryGroup&, std::span<const int32_t> pages,
                     float* log_mass) const override {
    for (const int32_t page : pages) {
      // Splitmix64 (Steele, Lea, Flood 2014) of seed and page.
      uint64_t z = seed_ + 0x9E3779B97F4A7C15ull * (static_cast<uint64_t>(page) + 1);
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
      z ^= z >> 31;
      const double unit = (static_cast<double>(z >> 11) + 0.5) * 0x1.0p-53;
      *log_mass++ = static_cast<float>(std::log(-std::log(unit)));
    }
    return {};
  }

  uint64_t seed_;
};

class RecentScorer : public RowlessScorer {
 public:
  ScorerKind kind() const override { return ScorerKind::kRecent; }

 private:
  Status score_pages(const PageData& data, const QueryGroup&, std::span<const int32_t> pages,
                     float* log_mass) const override {
    const std::vector<size_t> begins = page_begins(data);
    for (const int32_t page : pages) {
      const size_t end = begins[static_cast<size_t>(page) + 1];
      const float age_tokens = static_cast<float>(begins.back() - end);
      *log_mass++ = std::log(static_cast<float>(data.num_tokens[static_cast<size_t>(page)])) -
                    age_tokens / kHalfLifeTokens * std::log(2.0f);
    }
    return {};
  }
};

}  // namespace

std::unique_ptr<PageScorer> make_plain_scorer(ScorerKind kind, uint64_t seed) {
  if (kind == ScorerKind::kLexical) return std::make_unique<LexicalScorer>();
  if (kind == ScorerKind::kRandom) return std::make_unique<RandomScorer>(seed);
  return std::make_unique<RecentScorer>();
}

}  // namespace ikv
