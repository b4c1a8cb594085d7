#include "text/chat_spans.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace ikv {
namespace {

constexpr int32_t kNoMessage = -1;

size_t common_prefix(std::string_view a, std::string_view b) {
  size_t n = 0;
  while (n < a.size() && n < b.size() && a[n] == b[n]) ++n;
  return n;
}

/// Where a message's contents lie: from its first piece to its last.
struct Located {
  int32_t message = kNoMessage;
  size_t begin = 0;
  size_t end = 0;
  bool altered = false;
};

class SpanBuilder {
 public:
  SpanBuilder(const MarkedRender& render, std::span<const Message> messages,
              const TemplateTraits& traits)
      : text_(render.text), messages_(messages), traits_(traits) {
    for (const PieceRange& piece : render.pieces) {
      if (piece.message < 0) continue;
      if (!located_.empty() && located_.back().message == piece.message) {
        located_.back().end = piece.end;
        located_.back().altered |= piece.altered;
      } else if (located_.empty() || located_.back().message < piece.message) {
        located_.push_back({piece.message, piece.begin, piece.end, piece.altered});
      }
    }
  }

  std::vector<TextSpan> build(bool add_generation_prompt) {
    std::optional<Located> previous;
    for (const Located& current : located_) {
      gap(previous, current);
      push(current.end, current.message, SpanPart::kContent, current.altered);
      previous = current;
    }
    gap(previous, std::nullopt);
    if (add_generation_prompt) {
      push(text_.size(), static_cast<int32_t>(messages_.size()), SpanPart::kHeader, false);
    } else if (!messages_.empty()) {
      push(text_.size(), static_cast<int32_t>(messages_.size()) - 1, SpanPart::kFooter, false);
    } else {
      push(text_.size(), kNoMessage, SpanPart::kHeader, false);
    }
    return std::move(spans_);
  }

 private:
  Role role_of(int32_t message) const {
    if (message < 0) return Role::kSystem;
    const auto index = static_cast<size_t>(message);
    return index < messages_.size() ? messages_[index].role : Role::kAssistant;
  }
  std::string_view header(int32_t message) const {
    return traits_.header[static_cast<size_t>(role_of(message))];
  }
  std::string_view footer(int32_t message) const {
    return traits_.footer[static_cast<size_t>(role_of(message))];
  }
  bool has_calls(int32_t message) const { return !messages_[message].tool_calls.empty(); }

  /// Everything up to `end` that has no span yet becomes this one.
  void push(size_t end, int32_t message, SpanPart part, bool coarse) {
    if (end <= cursor_) return;
    if (!spans_.empty() && spans_.back().message == message && spans_.back().part == part) {
      spans_.back().end = end;
      spans_.back().coarse |= coarse;
    } else {
      spans_.push_back({cursor_, end, message, role_of(message), part, coarse});
    }
    cursor_ = end;
  }

  std::string_view rest(size_t end) const {
    return std::string_view(text_).substr(cursor_, end - cursor_);
  }

  /// The text between the contents `previous` and `next`: what is left of the former, messages
  /// without a known place, and the header of the latter.
  void gap(const std::optional<Located>& previous, const std::optional<Located>& next) {
    const size_t end = next ? next->begin : text_.size();
    if (previous) close(previous->message, end);
    const int32_t first = previous ? previous->message + 1 : 0;
    const int32_t last = next ? next->message : static_cast<int32_t>(messages_.size());
    for (int32_t message = first; message < last; ++message) place(message, end, next);
    if (!next) return;
    // Text of no message (BOS, a default system prompt) may stand before the header.
    const std::string_view before = rest(end);
    const std::string_view head = header(next->message);
    const size_t at = head.empty() ? std::string_view::npos : before.rfind(head);
    if (at == std::string_view::npos) {
      push(end, next->message, SpanPart::kHeader, false);
      return;
    }
    const size_t header_end = cursor_ + at + head.size();
    push(cursor_ + at, kNoMessage, SpanPart::kHeader, false);
    push(header_end, next->message, SpanPart::kHeader, false);
    // Behind the header only a call's opening tag can stand before the content's first known byte.
    push(end, next->message, has_calls(next->message) ? SpanPart::kContent : SpanPart::kHeader,
         false);
  }

  /// What follows a content up to and with its footer.
  void close(int32_t message, size_t end) {
    const std::string_view foot = footer(message);
    const std::string_view after = rest(end);
    const size_t at = foot.empty() ? std::string_view::npos : after.find(foot);
    if (at == std::string_view::npos) {
      push(cursor_ + common_prefix(after, foot), message, SpanPart::kFooter, false);
      return;
    }
    if (has_calls(message)) {
      push(cursor_ + at, message, SpanPart::kContent, false);
    } else if (role_of(message) == Role::kSystem) {
      push(cursor_ + at, kNoMessage, SpanPart::kHeader, false);  // tool schemas
    }
    push(cursor_ + rest(end).find(foot) + foot.size(), message, SpanPart::kFooter, false);
  }

  /// A message whose content has no known place: it is empty, consists of calls that the template
  /// writes, or was altered beyond recognition.
  void place(int32_t message, size_t end, const std::optional<Located>& next) {
    const std::string_view head = header(message);
    const std::string_view foot = footer(message);
    const std::string_view before = rest(end);
    const bool empty = messages_[message].content.value_or("").empty() && !has_calls(message);
    size_t header_bytes = 0;
    const size_t head_at = head.empty() ? std::string_view::npos : before.find(head);
    if (head_at != std::string_view::npos) {
      push(cursor_ + head_at, kNoMessage, SpanPart::kHeader, false);
      header_bytes = head.size();
    } else if (empty) {
      return;  // the template leaves it out
    } else {
      header_bytes = common_prefix(before, head);
    }
    push(cursor_ + header_bytes, message, SpanPart::kHeader, false);
    const size_t foot_at = foot.empty() ? std::string_view::npos : rest(end).find(foot);
    if (foot_at != std::string_view::npos) {
      const bool exact = has_calls(message) ||
                         rest(end).substr(0, foot_at) == messages_[message].content.value_or("");
      push(cursor_ + foot_at, message, SpanPart::kContent, !exact);
      push(cursor_ + foot.size(), message, SpanPart::kFooter, false);
      return;
    }
    // Without a footer to look for, all up to the next header is the content.
    size_t content_end = end;
    if (next) {
      const std::string_view next_head = header(next->message);
      if (rest(end).ends_with(next_head)) content_end = end - next_head.size();
    }
    push(content_end, message, SpanPart::kContent, true);
  }

  const std::string& text_;
  std::span<const Message> messages_;
  const TemplateTraits& traits_;
  std::vector<Located> located_;
  std::vector<TextSpan> spans_;
  size_t cursor_ = 0;
};

size_t character_begin(std::string_view text) {
  size_t at = text.size();
  while (at > 0 && (static_cast<unsigned char>(text[at - 1]) & 0xC0) == 0x80) --at;
  return at > 0 ? at - 1 : 0;
}

std::vector<ByteRange> merged(std::vector<ByteRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const ByteRange& a, const ByteRange& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::vector<ByteRange> out;
  for (const ByteRange& range : ranges) {
    if (range.begin == range.end) continue;
    if (!out.empty() && range.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, range.end);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

}  // namespace

std::vector<TextSpan> build_text_spans(const MarkedRender& render,
                                       std::span<const Message> messages,
                                       const TemplateTraits& traits, bool add_generation_prompt) {
  return SpanBuilder(render, messages, traits).build(add_generation_prompt);
}

FinalRender remove_marks(const MarkedRender& render, std::vector<TextSpan> spans) {
  FinalRender out;
  std::vector<size_t> mark_at;  // offsets of marks in the marked text
  std::string_view rest = render.text;
  out.text.reserve(rest.size());
  for (size_t at = rest.find(render.mark); at != std::string_view::npos;
       at = rest.find(render.mark)) {
    out.text += rest.substr(0, at);
    mark_at.push_back(render.text.size() - rest.size() + at);
    out.literal.push_back({character_begin(out.text), out.text.size()});
    rest.remove_prefix(at + render.mark.size());
  }
  out.text += rest;
  const auto moved = [&](size_t offset) {
    const auto before = std::lower_bound(mark_at.begin(), mark_at.end(), offset) - mark_at.begin();
    return offset - static_cast<size_t>(before) * render.mark.size();
  };
  for (TextSpan& span : spans) {
    span.begin = moved(span.begin);
    span.end = moved(span.end);
  }
  out.spans = std::move(spans);
  for (const PieceRange& piece : render.pieces) {
    out.literal.push_back({moved(piece.begin), moved(piece.end)});
  }
  out.literal = merged(std::move(out.literal));
  return out;
}

std::vector<Span> token_spans(std::span<const TextSpan> spans,
                              std::span<const uint64_t> token_ends) {
  std::vector<Span> out;
  size_t at = 0;  // the span in which the current token begins
  uint64_t begin = 0;
  for (size_t token = 0; token < token_ends.size(); ++token) {
    const uint64_t end = token_ends[token];
    while (at + 1 < spans.size() && spans[at].end <= begin) ++at;
    size_t owner = at;
    for (size_t i = at; i < spans.size() && spans[i].begin < end; ++i) {
      if (spans[i].part == SpanPart::kContent) {
        owner = i;
        break;
      }
    }
    if (spans.empty()) return out;
    const TextSpan& span = spans[owner];
    const bool across = begin < span.begin || end > span.end;
    const auto position = static_cast<LogicalPos>(token);
    if (!out.empty() && out.back().message == span.message && out.back().part == span.part) {
      out.back().end = position + 1;
    } else {
      out.push_back({position, position + 1, span.message, span.role, span.part, span.coarse});
    }
    if (across && span.part == SpanPart::kContent) out.back().coarse = true;
    begin = end;
  }
  return out;
}

}  // namespace ikv
