// Which tokens belong to which message and part of it.
#pragma once

#include <cstdint>

#include "core/ids.h"
#include "core/message.h"

namespace ikv {

/// Header: what the template writes before a content (role markers); footer: what it writes after.
enum class SpanPart : uint8_t { kHeader, kContent, kFooter };

/// A run of tokens [begin, end) of one part of one message. Spans of a rendered conversation are
/// disjoint, ascending and cover every token. `message` is -1 for text of no message (BOS, tool
/// schemas, the generation prompt's header has the index that the reply will get).
struct Span {
  LogicalPos begin = 0;
  LogicalPos end = 0;
  int32_t message = -1;
  Role role = Role::kSystem;
  SpanPart part = SpanPart::kHeader;
  bool coarse = false;  ///< the template altered the content; the borders are approximate
};

}  // namespace ikv
