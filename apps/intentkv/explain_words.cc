#include "explain_words.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

namespace ikv {
namespace {

// Level 2 reads these by rule; that they were read tells nothing.
constexpr int32_t kSinkTokens = 32;
constexpr int32_t kRecentTokens = 128;

bool is_word_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x80 || std::isalnum(byte) != 0;
}

// Figures and times hang together: 07:55, 1.5, HU-7607.
bool joins(const std::string& text) {
  return text == ":" || text == "." || text == "-" || text == ",";
}

bool starts_word(const std::string& text) {
  return text.empty() || std::isspace(static_cast<unsigned char>(text.front())) != 0;
}

std::string trimmed(const std::string& text) {
  size_t begin = 0;
  size_t end = text.size();
  while (begin < end && !is_word_byte(text[begin])) ++begin;
  while (end > begin && !is_word_byte(text[end - 1])) --end;
  return text.substr(begin, end - begin);
}

}  // namespace

int32_t current_span_begin(const TurnAudit& audit) {
  for (size_t i = audit.spans.size(); i-- > 0;) {
    const AuditSpan& span = audit.spans[i];
    if (span.part != "content" || span.end > audit.usage.prompt_tokens) continue;
    if (span.role == Role::kUser || span.role == Role::kTool) return span.begin;
  }
  return audit.usage.prompt_tokens;
}

std::vector<ReadWord> most_read_words(const AuditRecord& record, size_t most) {
  const TurnAudit& audit = record.audit;
  const int32_t limit =
      std::min(current_span_begin(audit), audit.usage.prompt_tokens - kRecentTokens);
  std::vector<ReadWord> words;
  size_t next_span = 0;
  int32_t position = 0;
  ReadWord word;
  const auto flush = [&] {
    word.text = trimmed(word.text);
    if (!word.text.empty()) words.push_back(word);
    word = {};
  };
  for (const TokenText& text : record.texts) {
    const int32_t begin = position;
    position += text.num_tokens;
    while (next_span < audit.spans.size() && audit.spans[next_span].end <= begin) ++next_span;
    if (next_span == audit.spans.size() || position > limit) break;
    const AuditSpan& span = audit.spans[next_span];
    if (span.part != "content" || begin < kSinkTokens) {
      flush();
      continue;
    }
    const bool part_of_word = is_word_byte(text.text.empty() ? ' ' : text.text.back());
    const bool goes_on = !word.text.empty() && word.message == span.message &&
                         !starts_word(text.text) && (part_of_word || joins(text.text));
    if (!goes_on) {
      flush();
      word.begin = begin;
      word.message = span.message;
      word.role = span.role;
    }
    word.text += text.text;
    word.end = position;
    for (int32_t p = begin; p < position; ++p) {
      word.share = std::max(word.share, double{audit.attended_shares[static_cast<size_t>(p)]});
    }
  }
  flush();
  std::stable_sort(words.begin(), words.end(),
                   [](const ReadWord& a, const ReadWord& b) { return a.share > b.share; });
  std::set<std::pair<int32_t, std::string>> seen;
  std::vector<ReadWord> best;
  for (ReadWord& candidate : words) {
    if (best.size() == most) break;
    if (seen.insert({candidate.message, candidate.text}).second) {
      best.push_back(std::move(candidate));
    }
  }
  return best;
}

}  // namespace ikv
