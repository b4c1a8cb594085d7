#include "attention/entry_rows.h"

#include <cstring>

#include "quant/kv_codec_kernels.h"

namespace ikv {
namespace {

const uint8_t* at(const KvPageView& page, uint32_t offset) {
  return reinterpret_cast<const uint8_t*>(page.data) + offset;
}

void gather_rows(const Stretch& stretch, const uint8_t* base, size_t row_bytes,
                 const uint8_t** rows) {
  if (stretch.entries == nullptr) {
    base += stretch.base * row_bytes;
    for (int i = 0; i < stretch.count; ++i) rows[i] = base + static_cast<size_t>(i) * row_bytes;
    return;
  }
  for (int i = 0; i < stretch.count; ++i) rows[i] = base + stretch.row(i) * row_bytes;
}

void gather_scales(const Stretch& stretch, const uint8_t* base, uint16_t* scales) {
  if (stretch.entries == nullptr) {
    // A whole page of the usual size is one line: a call to copy it costs more than the copy.
    if (stretch.count == 32) {
      std::memcpy(scales, base + stretch.base * 2, 64);
    } else {
      std::memcpy(scales, base + stretch.base * 2, static_cast<size_t>(stretch.count) * 2);
    }
    return;
  }
  for (int i = 0; i < stretch.count; ++i) std::memcpy(scales + i, base + stretch.row(i) * 2, 2);
}

RowSegment& segment_for(RunRows& out, const RowSegment& wanted) {
  if (out.num_segments > 0) {
    RowSegment& last = out.segments[out.num_segments - 1];
    if (last.format == wanted.format && last.query == wanted.query &&
        last.page_scales == wanted.page_scales) {
      return last;
    }
  }
  out.segments[out.num_segments] = wanted;
  return out.segments[out.num_segments++];
}

}  // namespace

void prefetch_scales(const KvPageView& page, const Stretch& stretch) {
  const KvPageLayout& layout = *page.layout;
  const uint32_t first = stretch.row(0), last = stretch.row(stretch.count - 1);
  const auto prefetch = [](const uint8_t* begin, const uint8_t* end) {
    for (; begin < end; begin += 64) prefetch_line(begin);
  };
  const auto group_bytes = static_cast<uint32_t>(layout.head_dim) / 32 * 4;
  const uint8_t* keys = at(page, layout.k_scale_offset);
  const uint8_t* values = at(page, layout.v_scale_offset);
  if (layout.formats.k == KvFormat::kInt8) prefetch(keys + first * 2, keys + last * 2 + 1);
  if (layout.formats.k == KvFormat::kInt4) prefetch(keys, keys + layout.head_dim * 4);
  if (layout.formats.v == KvFormat::kInt8) prefetch(values + first * 2, values + last * 2 + 1);
  if (layout.formats.v == KvFormat::kInt4) {
    prefetch(values + first * group_bytes, values + (last + 1) * group_bytes);
  }
}

void prefetch_scales(const AttentionSpec& spec, const EntrySource& source) {
  for_each_stretch(spec, source, [&](const Stretch& stretch) {
    prefetch_scales(source.pages[stretch.page], stretch);
  });
}

void gather_keys(const AttentionSpec& spec, const EntrySource& source,
                 std::span<const int32_t> shifts, RunRows& out) {
  out.num_segments = 0;
  out.lines = 1;
  int n = 0;
  for_each_stretch(spec, source, [&](const Stretch& stretch) {
    const KvPageView& page = source.pages[stretch.page];
    const KvPageLayout& layout = *page.layout;
    RowSegment wanted;
    wanted.format = layout.formats.k;
    while (shifts[static_cast<size_t>(wanted.query)] != page.position_shift) ++wanted.query;
    wanted.begin = n;
    if (wanted.format == KvFormat::kInt4) wanted.page_scales = at(page, layout.k_scale_offset);
    segment_for(out, wanted).count += stretch.count;
    const size_t row_bytes = kv_row_bytes(wanted.format, layout.head_dim);
    out.lines = std::max(out.lines, static_cast<int>((row_bytes + 63) / 64));
    gather_rows(stretch, at(page, layout.k_offset), row_bytes, out.rows + n);
    if (wanted.format == KvFormat::kInt8) {
      gather_scales(stretch, at(page, layout.k_scale_offset), out.scales + n);
    }
    n += stretch.count;
  });
  out.count = n;
}

void gather_values(const AttentionSpec& spec, const EntrySource& source, RunRows& out) {
  out.num_segments = 0;
  out.lines = 1;
  int n = 0;
  for_each_stretch(spec, source, [&](const Stretch& stretch) {
    const KvPageView& page = source.pages[stretch.page];
    const KvPageLayout& layout = *page.layout;
    RowSegment wanted;
    wanted.format = layout.formats.v;
    wanted.begin = n;
    segment_for(out, wanted).count += stretch.count;
    const size_t row_bytes = kv_row_bytes(wanted.format, layout.head_dim);
    out.lines = std::max(out.lines, static_cast<int>((row_bytes + 63) / 64));
    gather_rows(stretch, at(page, layout.v_offset), row_bytes, out.rows + n);
    const uint8_t* scales = at(page, layout.v_scale_offset);
    if (wanted.format == KvFormat::kInt8) {
      gather_scales(stretch, scales, out.scales + n);
    } else if (wanted.format == KvFormat::kInt4) {
      gather_rows(stretch, scales, static_cast<size_t>(layout.head_dim) / 32 * 4, out.params + n);
    }
    n += stretch.count;
  });
  out.count = n;
}

}  // namespace ikv
