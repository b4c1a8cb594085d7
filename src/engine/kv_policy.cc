#include "engine/kv_policy.h"

#include <array>
#include <bit>
#include <string>
#include <utility>

namespace ikv {
namespace {

constexpr std::array<std::pair<IntentChoice, std::string_view>, 5> kIntentChoices = {{
    {IntentChoice::kSpan, "span"},
    {IntentChoice::kFirst, "first"},
    {IntentChoice::kMemory, "memory"},
    {IntentChoice::kSpanMemory, "span+memory"},
    {IntentChoice::kStated, "stated"},
}};

}  // namespace

std::string_view intent_choice_name(IntentChoice choice) {
  for (const auto& [known, name] : kIntentChoices) {
    if (known == choice) return name;
  }
  return "?";
}

Result<IntentChoice> parse_intent_choice(std::string_view name) {
  for (const auto& [choice, known] : kIntentChoices) {
    if (known == name) return choice;
  }
  return invalid_argument("unknown source of intent '" + std::string(name.substr(0, 64)) +
                          "'; supported: span, first, memory, span+memory, stated");
}

IntentMix intent_mix(IntentChoice choice) {
  switch (choice) {
    case IntentChoice::kSpan:
      return {1, 1, 0, 0};
    case IntentChoice::kFirst:
      return {0, 0, 1, 0};
    case IntentChoice::kMemory:
      return {0, 0, 0, 1};
    case IntentChoice::kSpanMemory:
      return {1, 1, 0, 1};
    case IntentChoice::kStated:
      return {0, 1, 0, 0};
  }
  return {};
}

bool PagePolicy::asks_queries() const {
  return !lru && scorer != ScorerKind::kLexical && scorer != ScorerKind::kRandom &&
         scorer != ScorerKind::kRecent;
}

bool PagePolicy::asks_digests() const {
  return !lru && (scorer == ScorerKind::kCosine || scorer == ScorerKind::kDot ||
                  scorer == ScorerKind::kBox || scorer == ScorerKind::kMoment);
}

std::string_view page_scorer_name(const PagePolicy& policy) {
  return policy.lru ? "lru" : scorer_name(policy.scorer);
}

Status parse_page_scorer(std::string_view name, PagePolicy& policy) {
  policy.lru = name == "lru";
  if (policy.lru) return {};
  const auto scorer = parse_scorer(name);
  if (scorer) {
    policy.scorer = *scorer;
    return {};
  }
  std::string known;
  for (const ScorerKind kind : all_scorers()) known += std::string(scorer_name(kind)) + ", ";
  return invalid_argument("unknown page scorer '" + std::string(name.substr(0, 64)) +
                          "'; supported: " + known + "lru");
}

std::string_view token_scorer_name(TokenScorer scorer) {
  switch (scorer) {
    case TokenScorer::kCode:
      return "code";
    case TokenScorer::kExact:
      return "exact";
    case TokenScorer::kRandom:
      return "random";
    case TokenScorer::kRecent:
      return "recent";
  }
  return "?";
}

Result<TokenScorer> parse_token_scorer(std::string_view name) {
  for (const TokenScorer scorer :
       {TokenScorer::kCode, TokenScorer::kExact, TokenScorer::kRandom, TokenScorer::kRecent}) {
    if (token_scorer_name(scorer) == name) return scorer;
  }
  return invalid_argument("unknown token scorer '" + std::string(name.substr(0, 64)) +
                          "'; supported: code, exact, random, recent");
}

uint64_t KvPolicy::id() const {
  if (!prunes() && !demotes()) return 0;
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a over the fields' bits
  const auto mix = [&](uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash ^= value >> (8 * byte) & 255;
      hash *= 0x100000001b3u;
    }
  };
  const AttendBudget& b = attend.budget;
  mix(static_cast<uint64_t>(b.kind));
  mix(std::bit_cast<uint32_t>(b.share));
  mix(static_cast<uint64_t>(b.tokens));
  mix(std::bit_cast<uint32_t>(b.mass));
  mix(static_cast<uint64_t>(b.min_tokens));
  mix(static_cast<uint64_t>(b.sink_tokens));
  mix(static_cast<uint64_t>(b.recent_tokens));
  mix(b.force_selection ? 1 : 0);
  mix(static_cast<uint64_t>(attend.scorer));
  mix(std::bit_cast<uint32_t>(attend.candidates));
  mix(static_cast<uint64_t>(resident.kind));
  mix(std::bit_cast<uint32_t>(resident.share));
  mix(resident.bytes);
  mix(pages.lru ? 255 : static_cast<uint64_t>(pages.scorer));
  mix(static_cast<uint64_t>(pages.intent));
  return hash == 0 ? 1 : hash;
}

AttendStats& AttendStats::operator+=(const AttendStats& other) {
  selections += other.selections;
  cached += other.cached;
  scanned += other.scanned;
  ranked += other.ranked;
  attended += other.attended;
  bytes_read += other.bytes_read;
  probes += other.probes;
  missed_mass += other.missed_mass;
  return *this;
}

}  // namespace ikv
