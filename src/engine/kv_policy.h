// What is kept, attended and demoted of a sequence: the choice that a request makes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "intent/intent_builder.h"
#include "pruning/budget.h"
#include "relevance/page_scorer.h"

namespace ikv {

/// What level 2 ranks tokens by. kCode is ours; the others are for comparison.
enum class TokenScorer : uint8_t { kCode, kExact, kRandom, kRecent };

/// "code", "exact", "random", "recent".
std::string_view token_scorer_name(TokenScorer scorer);
Result<TokenScorer> parse_token_scorer(std::string_view name);

/// Level 2: which tokens one step reads.
struct AttendPolicy {
  AttendBudget budget;
  TokenScorer scorer = TokenScorer::kCode;
  /// Candidates that the codes pick, in multiples of the budget, for exact ranking; 1: codes alone.
  float candidates = 2.0f;
};

/// Whose queries level 1 asks what a turn is about. What the measurements support is the default.
enum class IntentChoice : uint8_t {
  kSpan,    ///< the current span's last queries; a stated intent counts as much, if there is one
  kFirst,   ///< the last prompt token's
  kMemory,  ///< those remembered of earlier turns; the span's in the first turn
  kSpanMemory,  ///< span and memory, half each
  kStated,      ///< the stated intent alone; the span's when none is stated
};

/// "span", "first", "memory", "span+memory", "stated".
std::string_view intent_choice_name(IntentChoice choice);
Result<IntentChoice> parse_intent_choice(std::string_view name);
/// The share of each source.
IntentMix intent_mix(IntentChoice choice);

/// Level 1: what decides which pages stay hot.
struct PagePolicy {
  ScorerKind scorer = ScorerKind::kExact;
  bool lru = false;  ///< least recently wanted page first out, whatever the scorer; for comparison
  IntentChoice intent = IntentChoice::kSpan;

  /// Whether the scorer looks at queries.
  bool asks_queries() const;
  /// Whether the scorer reads the pages' digests.
  bool asks_digests() const;
  /// Whether the mass that the span's own attention laid is the answer: it costs nothing more.
  bool is_span_mass() const {
    return !lru && scorer == ScorerKind::kExact && intent == IntentChoice::kSpan;
  }
};

/// A scorer of relevance, or "lru".
std::string_view page_scorer_name(const PagePolicy& policy);
/// Sets scorer and lru. kInvalidArgument lists the names.
Status parse_page_scorer(std::string_view name, PagePolicy& policy);

/// Both levels of one sequence. Equal policies have equal ids: keys and values computed under one
/// policy are not given to a sequence of another.
struct KvPolicy {
  AttendPolicy attend;
  ResidentBudget resident;
  PagePolicy pages;

  bool prunes() const {
    return attend.budget.kind != AttendBudget::Kind::kAll || attend.budget.force_selection;
  }
  bool demotes() const { return resident.kind != ResidentBudget::Kind::kAll; }
  /// Whether key codes are read, by level 2 or by level 1's scorer.
  bool asks_codes() const {
    return prunes() || (demotes() && !pages.lru && pages.scorer == ScorerKind::kCode);
  }
  bool asks_digests() const { return demotes() && pages.asks_digests(); }
  /// 0 when nothing is pruned or demoted.
  uint64_t id() const;
};

/// What level 2 did for one sequence; sums over steps, layers and KV heads.
struct AttendStats {
  uint64_t selections = 0;  ///< times that tokens were chosen
  uint64_t cached = 0;      ///< positions that were there, summed over selections
  uint64_t scanned = 0;     ///< positions scored by codes
  uint64_t ranked = 0;      ///< positions scored exactly
  uint64_t attended = 0;    ///< positions read by attention
  uint64_t bytes_read = 0;  ///< codes, keys and values
  uint64_t probes = 0;      ///< selections whose missed mass was measured
  double missed_mass = 0;   ///< exact attention mass left out, summed over probes

  AttendStats& operator+=(const AttendStats& other);
};

}  // namespace ikv
