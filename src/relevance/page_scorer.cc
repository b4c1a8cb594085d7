#include "relevance/page_scorer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "relevance/centre_radius.h"
#include "relevance/scorers.h"

namespace ikv {
namespace {

constexpr std::array<std::pair<ScorerKind, std::string_view>, 10> kNames = {{
    {ScorerKind::kCosine, "cosine"},
    {ScorerKind::kDot, "dot"},
    {ScorerKind::kMinMax, "minmax"},
    {ScorerKind::kBox, "box"},
    {ScorerKind::kMoment, "moment"},
    {ScorerKind::kCode, "code"},
    {ScorerKind::kExact, "exact"},
    {ScorerKind::kLexical, "lexical"},
    {ScorerKind::kRandom, "random"},
    {ScorerKind::kRecent, "recent"},
}};

}  // namespace

std::string_view scorer_name(ScorerKind kind) {
  for (const auto& [known, name] : kNames) {
    if (known == kind) return name;
  }
  return "?";
}

std::optional<ScorerKind> parse_scorer(std::string_view name) {
  for (const auto& [kind, known] : kNames) {
    if (known == name) return kind;
  }
  return std::nullopt;
}

std::span<const ScorerKind> all_scorers() {
  static constexpr auto kKinds = [] {
    std::array<ScorerKind, kNames.size()> kinds{};
    for (size_t i = 0; i < kinds.size(); ++i) kinds[i] = kNames[i].first;
    return kinds;
  }();
  return kKinds;
}

Status PageScorer::score(const PageData& data, const QueryGroup& group,
                         std::span<const int32_t> pages, std::span<float> log_mass) const {
  IKV_RETURN_IF_ERROR(check_page_data(data, group));
  for (const int32_t page : pages) {
    if (page < 0 || static_cast<size_t>(page) >= data.num_pages()) {
      return invalid_argument("relevance: page " + std::to_string(page) + " of " +
                              std::to_string(data.num_pages()));
    }
  }
  if (log_mass.size() != group.num_rows() * pages.size()) {
    return invalid_argument("relevance: room for " + std::to_string(log_mass.size()) +
                            " scores, there are " +
                            std::to_string(group.num_rows() * pages.size()));
  }
  IKV_RETURN_IF_ERROR(score_checked(data, group, pages, log_mass.data()));
  // Keys of a broken model may be infinite; a page that cannot be scored counts for nothing.
  for (float& value : log_mass) {
    if (std::isnan(value)) value = -INFINITY;
  }
  return {};
}

std::unique_ptr<PageScorer> make_page_scorer(ScorerKind kind, uint64_t seed) {
  switch (kind) {
    case ScorerKind::kCosine:
    case ScorerKind::kDot:
    case ScorerKind::kMinMax:
    case ScorerKind::kBox:
    case ScorerKind::kMoment:
      return make_digest_scorer(kind);
    case ScorerKind::kCode:
    case ScorerKind::kExact:
      return make_token_scorer(kind);
    case ScorerKind::kLexical:
    case ScorerKind::kRandom:
    case ScorerKind::kRecent:
      return make_plain_scorer(kind, seed);
  }
  return nullptr;
}

}  // namespace ikv
