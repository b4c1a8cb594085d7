// From places of contents to spans that cover the whole rendered text. Internal to src/text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/message.h"
#include "core/span.h"
#include "text/chat_shape.h"
#include "text/tokenizer.h"

namespace ikv {

/// A byte range of a rendered text that belongs to one part of one message; see Span.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  int32_t message = -1;
  Role role = Role::kSystem;
  SpanPart part = SpanPart::kHeader;
  bool coarse = false;
};

/// Cuts a rendering into spans that tile it: contents where they were found, the text between them
/// into footers and headers by what the template was seen to write around each role.
std::vector<TextSpan> build_text_spans(const MarkedRender& render,
                                       std::span<const Message> messages,
                                       const TemplateTraits& traits, bool add_generation_prompt);

/// A rendering without marks: text, spans, and the ranges in which control tokens are only text.
struct FinalRender {
  std::string text;
  std::vector<TextSpan> spans;
  std::vector<ByteRange> literal;  ///< ascending, disjoint
};

/// Takes the marks out and moves all offsets.
FinalRender remove_marks(const MarkedRender& render, std::vector<TextSpan> spans);

/// Token spans from text spans. A token that touches a content belongs to it, and a content whose
/// border lies inside a token becomes coarse.
std::vector<Span> token_spans(std::span<const TextSpan> spans,
                              std::span<const uint64_t> token_ends);

}  // namespace ikv
