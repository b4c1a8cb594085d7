#include "model/workspace.h"

#include <algorithm>
#include <array>

#include "ops/matmul.h"

namespace ikv {
namespace {

// Floats a row in each part, in the order of Workspace's members, each part padded to a cache line.
std::array<size_t, 9> row_widths(const DecoderSpec& spec) {
  size_t q_width = 0;
  size_t kv_width = 0;
  for (const LayerSpec& layer : spec.layers) {
    const AttentionSpec& a = layer.attention;
    q_width = std::max(q_width, static_cast<size_t>(a.num_heads) * static_cast<size_t>(a.head_dim));
    kv_width =
        std::max(kv_width, static_cast<size_t>(a.num_kv_heads) * static_cast<size_t>(a.head_dim));
  }
  const size_t hidden = static_cast<size_t>(spec.config.hidden_size);
  const size_t ffn = static_cast<size_t>(spec.config.ffn_size);
  return {hidden, hidden, hidden, q_width, kv_width, kv_width, q_width, ffn, ffn};
}

size_t padded_floats(size_t width, size_t num_rows) {
  return (width * num_rows + 15) / 16 * 16;
}

size_t scratch_bytes(const DecoderSpec& spec, size_t num_rows) {
  size_t widest = 0;  // the attended rows are among them
  for (const size_t width : row_widths(spec)) widest = std::max(widest, width);
  return matmul_scratch_bytes(widest, num_rows);
}

}  // namespace

uint64_t Workspace::bytes_for(const DecoderSpec& spec, size_t num_rows) {
  uint64_t floats = 0;
  for (const size_t width : row_widths(spec)) floats += padded_floats(width, num_rows);
  return floats * sizeof(float) + scratch_bytes(spec, num_rows);
}

Status Workspace::reserve(const DecoderSpec& spec, size_t num_rows) {
  const uint64_t num_bytes = bytes_for(spec, num_rows);
  if (num_bytes > buffer_.size_bytes()) {
    buffer_ = AlignedBuffer();  // the old rows are not needed: do not hold both
    IKV_ASSIGN_OR_RETURN(buffer_, AlignedBuffer::allocate(num_bytes));
  }
  float* next = buffer_.as<float>().data();
  float** const parts[] = {&x, &normed, &branch, &q, &k, &v, &attended, &gate, &up};
  const auto widths = row_widths(spec);
  for (size_t i = 0; i < widths.size(); ++i) {
    *parts[i] = next;
    next += padded_floats(widths[i], num_rows);
  }
  matmul_scratch = reinterpret_cast<std::byte*>(next);
  return {};
}

}  // namespace ikv
