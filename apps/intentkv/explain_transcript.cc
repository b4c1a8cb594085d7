// The transcript of an audited turn, line by line, with marks.
#include <algorithm>
#include <cstdio>

#include "cli_error.h"
#include "explain_text.h"

namespace ikv {
namespace {

// A line of the transcript is broken where it grows beyond so many bytes.
constexpr size_t kLineBytes = 84;

constexpr const char* kReset = "\x1b[0m";
constexpr const char* kBold = "\x1b[1m";
constexpr const char* kDim = "\x1b[2m";
constexpr const char* kCyan = "\x1b[36m";
constexpr const char* kGreen = "\x1b[32m";

// Builds lines of tokens with equal marks joined.
class TranscriptPrinter {
 public:
  TranscriptPrinter(const AuditRecord& record, const AuditRecord* before, const ExplainStyle& style)
      : audit_(record.audit), before_(before), style_(style) {}

  void start_message(const AuditSpan& span) {
    end_line();
    const std::string name = span.message < 0 ? "template" : std::string(role_name(span.role));
    out_ += "-- " + name;
    if (span.message >= 0) out_ += " " + std::to_string(span.message);
    out_ += "\n";
  }

  void add(const TokenText& text, int32_t begin) {
    std::string rest = text.text;
    for (size_t newline; (newline = rest.find('\n')) != std::string::npos;) {
      add_piece(rest.substr(0, newline), begin, text.num_tokens);
      end_line();
      rest.erase(0, newline + 1);
    }
    if (rest.empty()) return;
    const bool at_word = rest.front() == ' ' || text_bytes_ > kLineBytes + 20;
    if (text_bytes_ + rest.size() > kLineBytes && at_word) end_line();
    add_piece(rest, begin, text.num_tokens);
  }

  std::string finish() {
    end_line();
    return std::move(out_);
  }

 private:
  enum class Mark : uint8_t { kPruned, kPartly, kKept, kBack };

  Mark mark_of(int32_t begin, int32_t count) const {
    const float share = most(audit_.attended_shares, begin, count);
    if (share >= style_.read_above) {
      const bool known = before_ != nullptr && static_cast<size_t>(begin + count) <=
                                                   before_->audit.attended_shares.size();
      const bool was_pruned =
          known && begin + count <= before_->audit.usage.prompt_tokens &&
          most(before_->audit.attended_shares, begin, count) < style_.pruned_below;
      return was_pruned ? Mark::kBack : Mark::kKept;
    }
    return share < style_.pruned_below ? Mark::kPruned : Mark::kPartly;
  }

  static float most(const std::vector<float>& shares, int32_t begin, int32_t count) {
    return *std::max_element(shares.begin() + begin, shares.begin() + begin + count);
  }

  bool is_cold(int32_t position) {
    while (block_ + 1 < audit_.blocks.size() && audit_.blocks[block_].end <= position) ++block_;
    if (block_ >= audit_.blocks.size()) return false;
    return audit_.blocks[block_].cold_pages > audit_.blocks[block_].hot_pages;
  }

  void add_piece(const std::string& text, int32_t begin, int32_t count) {
    for (int32_t p = begin; p < begin + count; ++p) {
      share_sum_ += double{audit_.attended_shares[static_cast<size_t>(p)]};
    }
    num_tokens_ += count;
    if (is_cold(begin)) num_cold_ += count;
    if (text.empty()) return;
    const Mark mark = mark_of(begin, count);
    if (!has_mark_ || mark != mark_) switch_mark(mark);
    // Control characters of a transcript must not reach the terminal.
    line_ += one_line(text);
    text_bytes_ += text.size();
  }

  void switch_mark(Mark mark) {
    close_mark();
    mark_ = mark;
    has_mark_ = true;
    if (style_.colour) {
      if (mark == Mark::kKept) line_ += kBold;
      if (mark == Mark::kBack) line_ += std::string(kBold) + kGreen;
      if (mark == Mark::kPruned) line_ += kDim;
    } else {
      if (mark == Mark::kKept) line_ += "«";
      if (mark == Mark::kBack) line_ += "‹";
    }
  }

  void close_mark() {
    if (!has_mark_) return;
    if (style_.colour) {
      line_ += kReset;
    } else {
      if (mark_ == Mark::kKept) line_ += "»";
      if (mark_ == Mark::kBack) line_ += "›";
    }
    has_mark_ = false;
  }

  void end_line() {
    close_mark();
    if (num_tokens_ > 0) {
      const double share = share_sum_ / num_tokens_;
      const char* word = share >= style_.read_above    ? "kept  "
                         : share < style_.pruned_below ? "pruned"
                                                       : "partly";
      const bool cold = 2 * num_cold_ > num_tokens_;
      char gutter[64];
      std::snprintf(gutter, sizeof gutter, "%4.0f%% %s %s ", 100 * share, word,
                    cold ? "int4" : "    ");
      if (style_.colour) out_ += cold ? kCyan : kDim;
      out_ += gutter;
      if (style_.colour) out_ += kReset;
      out_ += "| " + line_ + "\n";
    }
    line_.clear();
    text_bytes_ = 0;
    share_sum_ = 0;
    num_tokens_ = 0;
    num_cold_ = 0;
  }

  const TurnAudit& audit_;
  const AuditRecord* before_;
  const ExplainStyle& style_;
  std::string out_;
  std::string line_;
  size_t text_bytes_ = 0;
  double share_sum_ = 0;
  int32_t num_tokens_ = 0;
  int32_t num_cold_ = 0;
  size_t block_ = 0;
  Mark mark_ = Mark::kPartly;
  bool has_mark_ = false;
};

}  // namespace

std::string explain_transcript(const AuditRecord& record, const AuditRecord* before,
                               const ExplainStyle& style) {
  TranscriptPrinter printer(record, before, style);
  const std::vector<AuditSpan>& spans = record.audit.spans;
  size_t next_span = 0;
  int32_t position = 0;
  int32_t shown = -2;  // message
  for (const TokenText& text : record.texts) {
    const int32_t begin = position;
    position += text.num_tokens;
    while (next_span < spans.size() && spans[next_span].end <= begin) ++next_span;
    if (next_span == spans.size()) break;
    const AuditSpan& span = spans[next_span];
    // The role markers that a template writes around a message say nothing to a reader.
    if (span.message >= 0 && span.part != "content") continue;
    if (span.message != shown) printer.start_message(span);
    shown = span.message;
    printer.add(text, begin);
  }
  return printer.finish();
}

std::string explain_conversation(const TurnAudit& audit, const std::vector<Message>& messages,
                                 const ExplainStyle& style) {
  std::string text;
  for (const AuditSpan& span : audit.spans) {
    const auto index = static_cast<size_t>(std::max(span.message, 0));
    if (span.part != "content" || span.message < 0 || index >= messages.size()) continue;
    const double share = span.attended_share;
    const bool kept = share >= style.read_above;
    const bool pruned = share < style.pruned_below;
    char gutter[64];
    std::snprintf(gutter, sizeof gutter, "%4.0f%% %s ", 100 * share,
                  kept ? "kept  " : (pruned ? "pruned" : "partly"));
    text += "-- " + std::string(role_name(span.role)) + " " + std::to_string(span.message) + "\n";
    const std::string content = messages[index].content.value_or("");
    for (size_t begin = 0; begin < content.size();) {
      const size_t end = std::min(content.find('\n', begin), content.size());
      if (style.colour) text += kept ? kBold : (pruned ? kDim : "");
      text += gutter;
      text += "| " + one_line(content.substr(begin, end - begin));
      if (style.colour) text += kReset;
      text += "\n";
      begin = end + 1;
    }
  }
  return text;
}

}  // namespace ikv
