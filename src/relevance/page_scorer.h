// Page scorers: how much attention mass a page is expected to get, by ten ways of estimating it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "relevance/page_data.h"

namespace ikv {

/// n is the page's number of tokens, s the attention scale, q a query, mu, sigma, min, max the
/// page's digest. Given is the logarithm of the page's estimated mass, up to a constant of the row.
enum class ScorerKind : uint8_t {
  kCosine,   ///< log n + s |q| m cos(q, mu), m the mean of all |mu|: direction alone
  kDot,      ///< log n + s q·mu
  kMinMax,   ///< log n + s sum of max(q·min, q·max) by channel: an upper bound (Tang et al. 2024)
  kBox,      ///< log n + s (q·mu + |q|·r), r the mean absolute deviation by channel
  kMoment,   ///< log n + s q·mu + s² sum q² sigma² / 2: exact for normally distributed keys
  kCode,     ///< log of the sum of exp(logit) over tokens, logits from key codes
  kExact,    ///< the same with logits from the keys
  kLexical,  ///< words in common with the intent's tokens, rare ones weigh more; no queries
  kRandom,   ///< exponentially distributed mass, by seed and page; the baseline
  kRecent,   ///< mass halves every 512 tokens back from the end
};

/// "cosine", "dot", "minmax", "box", "moment", "code", "exact", "lexical", "random", "recent".
std::string_view scorer_name(ScorerKind kind);
/// The kind of that name, or nothing.
std::optional<ScorerKind> parse_scorer(std::string_view name);
/// All kinds, for tests and help.
std::span<const ScorerKind> all_scorers();

/// One way of scoring. Stateless but for its seed: thread-safe, deterministic.
class PageScorer {
 public:
  virtual ~PageScorer() = default;
  virtual ScorerKind kind() const = 0;

  /// Logarithm of the estimated mass of `pages` (indices into `data`) for each row of `group`:
  /// log_mass[row * pages.size() + i]. kInvalidArgument: shapes that do not agree, a page out of
  /// range, data that this scorer needs and that are not there (named). Cost: rows * pages *
  /// head_dim, for kCode and kExact times the tokens of a page.
  Status score(const PageData& data, const QueryGroup& group, std::span<const int32_t> pages,
               std::span<float> log_mass) const;

 private:
  virtual Status score_checked(const PageData& data, const QueryGroup& group,
                               std::span<const int32_t> pages, float* log_mass) const = 0;
};

/// A scorer. `seed` matters to kRandom alone.
std::unique_ptr<PageScorer> make_page_scorer(ScorerKind kind, uint64_t seed = 0);

}  // namespace ikv
