// Which entries of a page list a query may read, and where their rows lie. Internal to attention.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "attention/attention_kernels.h"
#include "core/attention_spec.h"
#include "core/ids.h"
#include "core/kv_view.h"

namespace ikv {

/// Rows first .. last-1 of a page.
struct RowRange {
  int first = 0;
  int last = 0;
  bool empty() const { return first >= last; }
};

/// The rows of `page` that a query at `position` reads: causal by logical position; the window
/// compares with where a key stands, its page's shift included.
inline RowRange readable_rows(const AttentionSpec& spec, LogicalPos position,
                              const KvPageView& page) {
  if (page.data == nullptr || page.begin > position) return {};
  RowRange range{0, static_cast<int>(std::min<int64_t>(
                        page.num_tokens, static_cast<int64_t>(position) - page.begin + 1))};
  if (spec.window_tokens > 0) {
    const int64_t first =
        static_cast<int64_t>(position) - spec.window_tokens + 1 - page.begin - page.position_shift;
    range.first = static_cast<int>(std::clamp<int64_t>(first, 0, range.last));
  }
  return range;
}

/// Tokens of a page in this list; 0 when no page has a layout, that is, none has data.
inline uint32_t list_block_tokens(std::span<const KvPageView> pages) {
  for (const KvPageView& page : pages) {
    if (page.data != nullptr) return static_cast<uint32_t>(page.layout->block_tokens);
  }
  return 0;
}

/// Some readable entries in order: those of `entries`, or, when that is null, `count` readable rows
/// from row `row` of page `page` on.
struct EntrySource {
  std::span<const KvPageView> pages;
  LogicalPos position = 0;
  const uint32_t* entries = nullptr;
  uint32_t block_tokens = 0;
  uint32_t page = 0;
  int row = 0;
  int count = 0;
};

/// Entries of one page: rows `entries[i] - base`, or base .. base + count - 1 when it is null.
struct Stretch {
  uint32_t page = 0;
  const uint32_t* entries = nullptr;
  uint32_t base = 0;
  int count = 0;
  uint32_t row(int i) const {
    return entries != nullptr ? entries[i] - base : base + static_cast<uint32_t>(i);
  }
};

/// Calls use(stretch) for the source's entries, page by page.
template <typename Use>
void for_each_stretch(const AttentionSpec& spec, const EntrySource& source, Use&& use) {
  if (source.entries != nullptr) {
    for (int i = 0; i < source.count;) {
      Stretch stretch{source.entries[i] / source.block_tokens, source.entries + i, 0, 0};
      stretch.base = stretch.page * source.block_tokens;
      const uint32_t end = stretch.base + source.block_tokens;
      int j = i + 1;
      while (j < source.count && source.entries[j] < end) ++j;
      stretch.count = j - i;
      use(stretch);
      i = j;
    }
    return;
  }
  int left = source.count;
  int row = source.row;
  for (uint32_t p = source.page; left > 0; ++p) {
    const RowRange range = readable_rows(spec, source.position, source.pages[p]);
    const int first = std::max(range.first, row);
    row = 0;
    const int count = std::min(range.last - first, left);
    if (count <= 0) continue;
    use(Stretch{p, nullptr, static_cast<uint32_t>(first), count});
    left -= count;
  }
}

/// Consecutive entries of a run whose keys one kernel call scores, or whose values one call adds.
struct RowSegment {
  KvFormat format = KvFormat::kF16;
  int query = 0;  ///< keys: index of the shift
  int begin = 0;
  int count = 0;
  const uint8_t* page_scales = nullptr;  ///< int4 keys
};

/// The rows of one run by pointer.
struct RunRows {
  const uint8_t* rows[kRunCapacity];
  const uint8_t* params[kRunCapacity];  ///< int4 values
  uint16_t scales[kRunCapacity];        ///< int8
  RowSegment segments[kRunEntries];
  int num_segments = 0;
  int count = 0;
  int lines = 1;  ///< cache lines of the longest row
};

/// Asks for a cache line that is read soon. As an instruction, since GCC 12 drops loops that only
/// prefetch by its builtin.
inline void prefetch_line(const uint8_t* address) {
#if defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*address));
#else
  __builtin_prefetch(address);
#endif
}

/// Asks for all rows of a run.
inline void prefetch_rows(const RunRows& run) {
  for (int i = 0; i < run.count; ++i) {
    for (int line = 0; line < run.lines; ++line) prefetch_line(run.rows[i] + line * 64);
  }
}

/// Asks for the scales of the stretch's rows, which gathering reads right away.
void prefetch_scales(const KvPageView& page, const Stretch& stretch);
void prefetch_scales(const AttentionSpec& spec, const EntrySource& source);

/// Fills `out` with the keys of `source`; `shifts` are the distinct shifts of the list.
void gather_keys(const AttentionSpec& spec, const EntrySource& source,
                 std::span<const int32_t> shifts, RunRows& out);
void gather_values(const AttentionSpec& spec, const EntrySource& source, RunRows& out);

}  // namespace ikv
