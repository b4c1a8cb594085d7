#include "kv/key_codes.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kv/key_transform_view.h"

namespace ikv {

namespace {
constexpr int kSubCentroids = kKeySubDim * kKeyCentroids;
size_t sub_floats(int head_dim) {
  return static_cast<size_t>(head_dim / kKeySubDim) * KeyCodebooks::kSubFloats;
}
size_t head_floats(int head_dim) {
  return sub_floats(head_dim) + 2 * static_cast<size_t>(head_dim);
}
/// Byte of sub-vector pair `pair` of row `row` within a page's codes.
size_t code_at(int head_dim, int row, int pair) {
  return (static_cast<size_t>(row / 16) * (head_dim / 8) + static_cast<size_t>(pair)) * 16 +
         static_cast<size_t>(row % 16);
}
}  // namespace

KeyTransform identity_transform(int head_dim) {
  KeyTransform transform;
  for (int c = 0; c < head_dim; ++c) transform.channel.push_back(static_cast<uint16_t>(c));
  transform.scale.assign(static_cast<size_t>(head_dim), 1.0f);
  return transform;
}

bool is_valid_transform(const KeyTransform& transform, int head_dim) {
  const auto size = static_cast<size_t>(head_dim);
  if (transform.channel.size() != size || transform.scale.size() != size) return false;
  std::vector<bool> seen(size, false);
  for (const uint16_t channel : transform.channel) {
    if (channel >= size || seen[channel]) return false;
    seen[channel] = true;
  }
  return std::all_of(transform.scale.begin(), transform.scale.end(), [](float scale) {
    return scale > 0.0f && std::isfinite(scale) && std::isfinite(1.0f / scale);
  });
}

TransformView::TransformView(std::span<const float> book, int head_dim)
    : scale(book.data() + sub_floats(head_dim) + head_dim), size(static_cast<size_t>(head_dim)) {
  const float* from = book.data() + sub_floats(head_dim);
  for (size_t c = 0; c < size; ++c) channel[c] = static_cast<uint16_t>(from[c]);
}

void TransformView::apply_to_key(const float* key, float* out) const {
  for (size_t c = 0; c < size; ++c) out[c] = key[channel[c]] * scale[c];
}

Result<KeyCodebooks> KeyCodebooks::create(KeyCodeKind kind, std::vector<KvLayerShape> layers) {
  KeyCodebooks books;
  size_t offset = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    const auto [num_heads, head_dim] = layers[l];
    if (head_dim < 32 || head_dim > kMaxKeyHeadDim || head_dim % 32 != 0 || num_heads < 1) {
      return unsupported("key codes of layer " + std::to_string(l) + ": " +
                         std::to_string(num_heads) + " KV heads of size " +
                         std::to_string(head_dim) + "; sizes are multiples of 32 up to 512");
    }
    books.layer_offset_.push_back(offset);
    offset += static_cast<size_t>(num_heads) * head_floats(head_dim);
  }
  books.kind_ = kind;
  books.layers_ = std::move(layers);
  books.values_.resize(offset);
  for (size_t l = 0; l < books.layers_.size(); ++l) {
    const std::vector<float> zeros(static_cast<size_t>(books.layers_[l].head_dim) * kKeyCentroids);
    for (int h = 0; h < books.layers_[l].num_kv_heads; ++h) {
      books.set_head(static_cast<int>(l), h, zeros);
    }
  }
  return books;
}

std::span<const float> KeyCodebooks::head(int layer, int kv_head) const {
  const size_t n = head_floats(layers_[layer].head_dim);
  return {values_.data() + layer_offset_[layer] + static_cast<size_t>(kv_head) * n, n};
}

void KeyCodebooks::set_head(int layer, int kv_head, std::span<const float> centroids) {
  set_head(layer, kv_head, centroids, identity_transform(layers_[layer].head_dim));
}

KeyTransform KeyCodebooks::transform(int layer, int kv_head) const {
  const int head_dim = layers_[layer].head_dim;
  const TransformView view(head(layer, kv_head), head_dim);
  KeyTransform result;
  result.channel.assign(view.channel, view.channel + head_dim);
  result.scale.assign(view.scale, view.scale + head_dim);
  return result;
}

void KeyCodebooks::set_head(int layer, int kv_head, std::span<const float> centroids,
                            const KeyTransform& transform) {
  const int num_sub = layers_[layer].head_dim / kKeySubDim;
  IKV_CHECK(centroids.size() == static_cast<size_t>(num_sub) * kSubCentroids);
  IKV_CHECK(is_valid_transform(transform, layers_[layer].head_dim));
  float* out = values_.data() + layer_offset_[layer] +
               static_cast<size_t>(kv_head) * head_floats(layers_[layer].head_dim);
  for (int m = 0; m < num_sub; ++m) {
    const float* from = centroids.data() + static_cast<size_t>(m) * kSubCentroids;
    float* to = out + static_cast<size_t>(m) * kSubFloats;
    std::copy_n(from, kSubCentroids, to);
    for (int c = 0; c < kKeyCentroids; ++c) {
      float squares = 0.0f;
      for (int d = 0; d < kKeySubDim; ++d) squares += from[d * 16 + c] * from[d * 16 + c];
      to[kSubCentroids + c] = 0.5f * squares;
    }
  }
  out += sub_floats(layers_[layer].head_dim);
  out = std::copy(transform.channel.begin(), transform.channel.end(), out);
  std::copy(transform.scale.begin(), transform.scale.end(), out);
}

void encode_keys_reference(std::span<const float> book, int head_dim, const float* keys,
                           size_t stride, int num_tokens, int first_row, std::byte* page_codes) {
  const TransformView transform(book, head_dim);
  float key[kMaxKeyHeadDim];
  for (int t = 0; t < num_tokens; ++t) {
    transform.apply_to_key(keys + static_cast<size_t>(t) * stride, key);
    for (int m = 0; m < head_dim / kKeySubDim; ++m) {
      const float* sub = book.data() + static_cast<size_t>(m) * KeyCodebooks::kSubFloats;
      int best = 0;
      float best_distance = 0.0f;
      for (int c = 0; c < kKeyCentroids; ++c) {
        // Half the squared distance, less the key's own norm, in the order of the SIMD kernel.
        float distance = sub[kSubCentroids + c];
        for (int d = 0; d < kKeySubDim; ++d) {
          distance -= key[m * kKeySubDim + d] * sub[d * 16 + c];
        }
        if (c == 0 || distance < best_distance) {
          best = c;
          best_distance = distance;
        }
      }
      std::byte& byte = page_codes[code_at(head_dim, first_row + t, m / 2)];
      byte = m % 2 == 0 ? static_cast<std::byte>(best) : byte | static_cast<std::byte>(best << 4);
    }
  }
}

void decode_key(std::span<const float> book, int head_dim, const std::byte* page_codes, int row,
                float* key) {
  const TransformView transform(book, head_dim);
  for (int m = 0; m < head_dim / kKeySubDim; ++m) {
    const auto byte = static_cast<uint8_t>(page_codes[code_at(head_dim, row, m / 2)]);
    const int c = m % 2 == 0 ? byte & 15 : byte >> 4;
    const float* sub = book.data() + static_cast<size_t>(m) * KeyCodebooks::kSubFloats;
    for (int d = 0; d < kKeySubDim; ++d) {
      const int at = m * kKeySubDim + d;
      key[transform.channel[at]] = sub[d * 16 + c] / transform.scale[at];
    }
  }
}

void build_scan_tables(std::span<const float> book, int head_dim, const float* queries,
                       size_t stride, int num_queries, KeyScanTables& tables) {
  const int num_sub = head_dim / kKeySubDim;
  const size_t query_entries = static_cast<size_t>(num_sub) * kKeyCentroids;
  tables.num_queries = num_queries;
  tables.head_dim = head_dim;
  tables.entries.resize(query_entries * static_cast<size_t>(num_queries));
  tables.bias.resize(static_cast<size_t>(num_queries));
  tables.scale.resize(static_cast<size_t>(num_queries));
  float products[kMaxKeyHeadDim / kKeySubDim * kKeyCentroids];
  float lows[kMaxKeyHeadDim / kKeySubDim];
  const TransformView transform(book, head_dim);
  float query[kMaxKeyHeadDim];
  for (int q = 0; q < num_queries; ++q) {
    const float* raw = queries + static_cast<size_t>(q) * stride;
    for (int c = 0; c < head_dim; ++c) query[c] = raw[transform.channel[c]] / transform.scale[c];
    float widest = 0.0f, bias = 0.0f;
    for (int m = 0; m < num_sub; ++m) {
      const float* sub = book.data() + static_cast<size_t>(m) * KeyCodebooks::kSubFloats;
      float* out = products + m * kKeyCentroids;
      for (int c = 0; c < kKeyCentroids; ++c) {
        float sum = 0.0f;
        for (int d = 0; d < kKeySubDim; ++d) sum += query[m * kKeySubDim + d] * sub[d * 16 + c];
        out[c] = sum;
      }
      const auto [low, high] = std::minmax_element(out, out + kKeyCentroids);
      lows[m] = *low;
      bias += *low;
      widest = std::max(widest, *high - *low);
    }
    const float scale = widest / 255.0f;
    const float inverse = scale > 0.0f && std::isfinite(scale) ? 1.0f / scale : 0.0f;
    tables.bias[q] = bias;
    tables.scale[q] = inverse > 0.0f ? scale : 0.0f;
    uint8_t* entries = tables.entries.data() + static_cast<size_t>(q) * query_entries;
    for (int m = 0; m < num_sub; ++m) {
      uint8_t* out = entries + static_cast<size_t>((m % 2) * (num_sub / 2) + m / 2) * kKeyCentroids;
      for (int c = 0; c < kKeyCentroids; ++c) {
        const float steps = (products[m * kKeyCentroids + c] - lows[m]) * inverse + 0.5f;
        out[c] = static_cast<uint8_t>(std::clamp(steps, 0.0f, 255.0f));
      }
    }
  }
}

void scan_key_codes_reference(const KeyScanTables& tables, const std::byte* page_codes,
                              int num_tokens, float* scores, size_t score_stride) {
  const int num_pairs = tables.head_dim / kKeySubDim / 2;
  for (int q = 0; q < tables.num_queries; ++q) {
    const uint8_t* even = tables.entries.data() + static_cast<size_t>(q) * num_pairs * 32;
    const uint8_t* odd = even + num_pairs * kKeyCentroids;
    for (int t = 0; t < num_tokens; ++t) {
      uint32_t sum = 0;
      for (int p = 0; p < num_pairs; ++p) {
        const auto byte = static_cast<uint8_t>(page_codes[code_at(tables.head_dim, t, p)]);
        sum += even[p * 16 + (byte & 15)] + odd[p * 16 + (byte >> 4)];
      }
      scores[static_cast<size_t>(q) * score_stride + static_cast<size_t>(t)] =
          tables.bias[q] + tables.scale[q] * static_cast<float>(sum);
    }
  }
}

void scan_key_code_pages(const KeyScanTables& tables, std::span<const std::byte* const> pages,
                         int block_tokens, int num_tokens, float* scores, size_t score_stride) {
  // A page's codes are a few cache lines: fetching some pages ahead hides the latency that the
  // hardware prefetcher cannot, since the pages' addresses follow no pattern.
  constexpr size_t kAhead = 8;
  const size_t page_bytes = key_code_bytes_per_token(tables.head_dim) * block_tokens;
  int done = 0;
  for (size_t i = 0; i < pages.size() && done < num_tokens; ++i) {
    if (i + kAhead < pages.size()) {
      for (size_t b = 0; b < page_bytes; b += 64) __builtin_prefetch(pages[i + kAhead] + b);
    }
    const int n = std::min(block_tokens, num_tokens - done);
    scan_key_codes(tables, pages[i], n, scores + done, score_stride);
    done += n;
  }
}

void max_over_queries(const float* in, size_t stride, int num_queries, int num_tokens,
                      float* scores) {
  std::copy_n(in, num_tokens, scores);
  for (int q = 1; q < num_queries; ++q) {
    const float* row = in + static_cast<size_t>(q) * stride;
    for (int t = 0; t < num_tokens; ++t) scores[t] = std::max(scores[t], row[t]);
  }
}

}  // namespace ikv
