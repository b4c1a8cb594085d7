#include "explain_text.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>

#include "cli_error.h"
#include "explain_words.h"

namespace ikv {
namespace {

__attribute__((format(printf, 1, 2))) std::string format(const char* pattern, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, pattern);
  std::vsnprintf(line, sizeof line, pattern, arguments);
  va_end(arguments);
  return line;
}

double percent(double part, double whole) {
  return whole > 0 ? 100.0 * part / whole : 0.0;
}

// What one message got, over its tokens of every part.
struct MessageFigures {
  Role role = Role::kUser;
  int32_t tokens = 0;
  double read = 0;  // sum of shares
  double mass = 0;
  double hot = 0;  // tokens whose pages are hot, in fractions of pages
  double paged = 0;
};

// A block's mass and pages are dealt out to messages by the tokens that they have in it.
void deal_out_blocks(const TurnAudit& audit, std::map<int32_t, MessageFigures>& figures) {
  for (const AuditSpan& span : audit.spans) {
    MessageFigures& own = figures[span.message];
    for (const AuditBlock& block : audit.blocks) {
      const int32_t overlap = std::min(span.end, block.end) - std::max(span.begin, block.begin);
      if (overlap <= 0) continue;
      own.mass += block.mass * overlap / (block.end - block.begin);
      const int32_t pages = block.hot_pages + block.cold_pages;
      own.paged += overlap;
      if (pages > 0) own.hot += static_cast<double>(overlap) * block.hot_pages / pages;
    }
  }
}

}  // namespace

std::string explain_figures(const TurnAudit& audit) {
  const Usage& usage = audit.usage;
  std::string text = format("turn %d", audit.turn);
  if (!audit.session_id.empty()) text += " of session " + one_line(audit.session_id);
  text += format(": prompt %d tokens (%d cached, %d evaluated), reply %d tokens in %d steps\n",
                 usage.prompt_tokens, usage.cached_tokens, usage.evaluated_tokens,
                 usage.completion_tokens, audit.num_steps);
  text += format("attend %s: a step read %.1f %% of the cache; the last one %d tokens, %d pruned\n",
                 one_line(audit.attend_budget).c_str(), 100 * usage.kv.attended_share,
                 usage.kv.kept_tokens, usage.kv.pruned_tokens);
  if (usage.kv.num_probes > 0) {
    text += format("missed attention mass: %.4f, mean of %llu probes\n", usage.kv.missed_mass,
                   static_cast<unsigned long long>(usage.kv.num_probes));
  }
  const auto pages = static_cast<double>(audit.hot_pages + audit.cold_pages);
  text += format("resident %s: %lld pages hot (%.0f %%), %lld cold; %.2f MiB of keys and values\n",
                 one_line(audit.resident_budget).c_str(), static_cast<long long>(audit.hot_pages),
                 percent(static_cast<double>(audit.hot_pages), pages),
                 static_cast<long long>(audit.cold_pages),
                 static_cast<double>(usage.kv.resident_bytes) / (1024.0 * 1024.0));
  AuditReasons all;
  for (const AuditBlock& block : audit.blocks) {
    all.pin += block.reasons.pin;
    all.recent += block.reasons.recent;
    all.score += block.reasons.score;
    all.room += block.reasons.room;
    all.demoted += block.reasons.demoted;
    all.earlier += block.reasons.earlier;
  }
  text += format("pages hot because: wanted most %d, within the budget %d, recent %d, sink %d\n",
                 all.score, all.room, all.recent, all.pin);
  text += format("pages cold because: others wanted more now %d, demoted at an earlier turn %d\n",
                 all.demoted, all.earlier);
  return text;
}

std::string explain_messages(const TurnAudit& audit) {
  std::map<int32_t, MessageFigures> figures;
  for (const AuditSpan& span : audit.spans) {
    MessageFigures& own = figures[span.message];
    if (own.tokens == 0 || span.part == "content") own.role = span.role;
    own.tokens += span.end - span.begin;
    own.read += span.attended_share * (span.end - span.begin);
  }
  deal_out_blocks(audit, figures);
  std::string text = "message  role       tokens   read  wanted     hot\n";
  for (const auto& [message, own] : figures) {
    const std::string name = message < 0 ? "-" : std::to_string(message);
    const std::string role = message < 0 ? "template" : std::string(role_name(own.role));
    text +=
        format("%7s  %-9s %7d %5.1f%% %6.1f%% %6.1f%%\n", name.c_str(), role.c_str(), own.tokens,
               percent(own.read, own.tokens), 100 * own.mass, percent(own.hot, own.paged));
  }
  text +=
      "read: share of steps, layers and heads that read its tokens; wanted: share of the "
      "question's\n"
      "attention; hot: share of its pages in full format\n";
  return text;
}

std::string explain_words(const AuditRecord& record, size_t most) {
  const std::vector<ReadWord> words = most_read_words(record, most);
  std::string text;
  for (const ReadWord& word : words) {
    text += format("%5.1f%%  %-9s %4d  ", 100 * word.share,
                   std::string(role_name(word.role)).c_str(), word.message);
    text += one_line(word.text) + "\n";
  }
  return text;
}

}  // namespace ikv
