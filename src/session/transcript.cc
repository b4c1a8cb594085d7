#include "session/transcript.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace ikv {
namespace {

bool arguments_equal(const std::string& a, const std::string& b) {
  if (a == b) return true;
  // Discarded on a parse error: unparsable arguments are equal only as text.
  const auto parsed_a = nlohmann::json::parse(a, nullptr, false);
  const auto parsed_b = nlohmann::json::parse(b, nullptr, false);
  if (parsed_a.is_discarded() || parsed_b.is_discarded()) return false;
  return parsed_a == parsed_b;
}

// Consecutive spans of one message: header, then body, then footer.
struct Group {
  int32_t message = -1;
  LogicalPos begin = 0;
  LogicalPos header_end = 0;    // == begin of the body
  LogicalPos footer_begin = 0;  // == end of the body
  LogicalPos end = 0;
};

std::vector<Group> group_by_message(const TokenizedChat& chat) {
  std::vector<Group> groups;
  for (const Span& span : chat.spans) {
    if (groups.empty() || groups.back().message != span.message) {
      groups.push_back({span.message, span.begin, span.begin, span.begin, span.end});
      Group& group = groups.back();
      if (span.part == SpanPart::kHeader) group.header_end = span.end;
      group.footer_begin = span.part == SpanPart::kFooter ? span.begin : span.end;
      continue;
    }
    Group& group = groups.back();
    group.end = span.end;
    if (span.part == SpanPart::kHeader && group.header_end == span.begin)
      group.header_end = span.end;
    if (span.part != SpanPart::kFooter) group.footer_begin = span.end;
  }
  return groups;
}

LogicalPos common_prefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const auto limit = std::min(a.size(), b.size());
  return static_cast<LogicalPos>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(limit), b.begin()).first -
      a.begin());
}

std::span<const TokenId> slice(const TokenizedChat& chat, LogicalPos begin, LogicalPos end) {
  return std::span(chat.tokens)
      .subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

// Copies [begin, end) of `from` with its spans to the back of `to`.
void append_range(const TokenizedChat& from, LogicalPos begin, LogicalPos end, TokenizedChat& to) {
  const LogicalPos shift = static_cast<LogicalPos>(to.tokens.size()) - begin;
  const auto tokens = slice(from, begin, end);
  to.tokens.insert(to.tokens.end(), tokens.begin(), tokens.end());
  for (const Span& span : from.spans) {
    Span copy = span;
    copy.begin = std::max(span.begin, begin);
    copy.end = std::min(span.end, end);
    if (copy.begin >= copy.end) continue;
    copy.begin += shift;
    copy.end += shift;
    if (!to.spans.empty()) {
      Span& last = to.spans.back();
      if (last.message == copy.message && last.part == copy.part && last.end == copy.begin) {
        last.end = copy.end;
        continue;
      }
    }
    to.spans.push_back(copy);
  }
}

// How far one group of the stored transcript serves for the rendered one.
struct GroupMatch {
  bool whole = false;             // the walk may go on with the next group
  LogicalPos stored_end = 0;      // stored tokens up to here are used
  LogicalPos rendered_begin = 0;  // rendered tokens from here on are used
  std::string what;               // the cause, when not whole
};

GroupMatch match_by_tokens(const Transcript& stored, const Group& s, const TokenizedChat& rendered,
                           const Group& r, std::string what) {
  const LogicalPos same =
      common_prefix(slice(stored.chat, s.begin, s.end), slice(rendered, r.begin, r.end));
  const bool whole = same == s.end - s.begin && same == r.end - r.begin;
  return {whole, s.begin + same, r.begin + same, std::move(what)};
}

GroupMatch match_equal_message(const Transcript& stored, const Group& s,
                               const TokenizedChat& rendered, const Group& r) {
  const auto stored_header = slice(stored.chat, s.begin, s.header_end);
  if (common_prefix(stored_header, slice(rendered, r.begin, r.end)) !=
      static_cast<LogicalPos>(stored_header.size())) {
    return match_by_tokens(stored, s, rendered, r, "template");
  }
  // The body is the stored one. A generated reply has no footer yet: the rendered one follows it.
  const auto stored_footer = slice(stored.chat, s.footer_begin, s.end);
  const LogicalPos same = common_prefix(stored_footer, slice(rendered, r.footer_begin, r.end));
  const bool stored_used_up = same == static_cast<LogicalPos>(stored_footer.size());
  const bool rendered_used_up = same == r.end - r.footer_begin;
  return {stored_used_up && rendered_used_up, s.footer_begin + same, r.footer_begin + same,
          "template"};
}

int64_t first_differing_byte(const Message& a, const Message& b) {
  const std::string& x = a.content ? *a.content : std::string();
  const std::string& y = b.content ? *b.content : std::string();
  const size_t limit = std::min(x.size(), y.size());
  size_t i = 0;
  while (i < limit && x[i] == y[i]) ++i;
  return static_cast<int64_t>(i);
}

std::string difference(const Message& a, const Message& b) {
  if (a.role != b.role) return "role";
  if (a.content.value_or("") != b.content.value_or("")) return "content";
  if (a.name != b.name) return "name";
  return "tool_calls";
}

}  // namespace

bool messages_equal(const Message& a, const Message& b) {
  if (a.role != b.role || a.name != b.name || a.content.value_or("") != b.content.value_or("") ||
      a.tool_calls.size() != b.tool_calls.size()) {
    return false;
  }
  for (size_t i = 0; i < a.tool_calls.size(); ++i) {
    if (a.tool_calls[i].name != b.tool_calls[i].name ||
        !arguments_equal(a.tool_calls[i].arguments_json, b.tool_calls[i].arguments_json)) {
      return false;
    }
  }
  return true;
}

TranscriptMatch match_transcript(const Transcript& stored, std::span<const Message> messages,
                                 const TokenizedChat& rendered) {
  const std::vector<Group> stored_groups = group_by_message(stored.chat);
  const std::vector<Group> rendered_groups = group_by_message(rendered);
  const LogicalPos stored_size = static_cast<LogicalPos>(stored.chat.tokens.size());
  TranscriptMatch match;
  GroupMatch last{true, 0, 0, ""};
  Divergence divergence;
  for (size_t g = 0; g < std::min(stored_groups.size(), rendered_groups.size()) && last.whole;
       ++g) {
    const Group& s = stored_groups[g];
    const Group& r = rendered_groups[g];
    divergence = {};
    divergence.message = r.message;
    const size_t m = static_cast<size_t>(r.message);
    const bool both_known = r.message >= 0 && s.message == r.message &&
                            m < stored.messages.size() && m < messages.size();
    if (s.message != r.message) {
      last = match_by_tokens(stored, s, rendered, r, "template");
    } else if (both_known && messages_equal(stored.messages[m], messages[m])) {
      last = match_equal_message(stored, s, rendered, r);
    } else if (both_known) {
      last = match_by_tokens(stored, s, rendered, r, difference(stored.messages[m], messages[m]));
      divergence.character = first_differing_byte(stored.messages[m], messages[m]);
      last.whole = false;  // equal tokens of unequal messages: what follows is compared afresh
    } else {
      last = match_by_tokens(stored, s, rendered, r, r.message < 0 ? "template" : "missing");
    }
  }
  match.num_common = last.stored_end;
  append_range(stored.chat, 0, last.stored_end, match.chat);
  append_range(rendered, last.rendered_begin, static_cast<LogicalPos>(rendered.tokens.size()),
               match.chat);
  if (match.num_common < stored_size) {
    divergence.lost_tokens = stored_size - match.num_common;
    divergence.what = last.whole ? "missing" : last.what;
    match.divergence = divergence;
  }
  return match;
}

void append_reply(Transcript& transcript, std::span<const TokenId> tokens, int32_t message_index) {
  if (tokens.empty()) return;
  const LogicalPos begin = static_cast<LogicalPos>(transcript.chat.tokens.size());
  const LogicalPos end = begin + static_cast<LogicalPos>(tokens.size());
  transcript.chat.tokens.insert(transcript.chat.tokens.end(), tokens.begin(), tokens.end());
  auto& spans = transcript.chat.spans;
  if (!spans.empty() && spans.back().message == message_index &&
      spans.back().part == SpanPart::kContent) {
    spans.back().end = end;
    return;
  }
  spans.push_back({begin, end, message_index, Role::kAssistant, SpanPart::kContent, false});
}

void truncate_transcript(Transcript& transcript, LogicalPos num_tokens) {
  auto& chat = transcript.chat;
  if (num_tokens >= static_cast<LogicalPos>(chat.tokens.size())) return;
  chat.tokens.resize(static_cast<size_t>(num_tokens));
  int32_t first_cut = INT32_MAX;
  for (const Span& span : chat.spans) {
    // A cut footer leaves the message itself whole.
    if (span.end > num_tokens && span.message >= 0 &&
        !(span.part == SpanPart::kFooter && span.begin <= num_tokens)) {
      first_cut = std::min(first_cut, span.message);
    }
  }
  std::erase_if(chat.spans, [&](const Span& span) { return span.begin >= num_tokens; });
  if (!chat.spans.empty()) chat.spans.back().end = std::min(chat.spans.back().end, num_tokens);
  if (first_cut < static_cast<int32_t>(transcript.messages.size())) {
    transcript.messages.resize(static_cast<size_t>(first_cut));
  }
}

}  // namespace ikv
