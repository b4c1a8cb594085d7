#include "engine/kv_policy.h"

#include <bit>

namespace ikv {

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
