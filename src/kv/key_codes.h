// Key codes: four bits for each four channels of a key, and the scan that scores all tokens by
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kv/kv_pool_types.h"

namespace ikv {

/// How codebooks come to be; coding and scanning are the same for both.
enum class KeyCodeKind : uint8_t {
  kProduct = 0,  ///< product quantisation: 16 centroids per 4 channels, by k-means over sample keys
  kSign = 1,     ///< one bit a channel: above or below its mean, at its mean absolute deviation
};

/// Channels of one sub-vector, and centroids of one sub-vector (4 bits).
inline constexpr int kKeySubDim = 4;
inline constexpr int kKeyCentroids = 16;

/// Bytes of one token's code for one KV head: head_dim / 8, that is 3.1 % of its f16 key and value.
inline size_t key_code_bytes_per_token(int head_dim) {
  return static_cast<size_t>(head_dim) / 8;
}

/// What is done to keys before they are coded: code channel c is scale[c] times key channel
/// channel[c]. Queries are divided by the same scales, so that products stay what they are. Which
/// channels share a sub-vector, and how much an error of each counts, decides how well 4 bits serve
/// four channels: see make_key_transform() of src/calibration.
struct KeyTransform {
  std::vector<uint16_t> channel;  ///< a permutation of 0..head_dim-1
  std::vector<float> scale;       ///< finite, > 0
};

/// Every channel in its place, at scale 1.
KeyTransform identity_transform(int head_dim);
/// A permutation, and finite positive scales with finite inverses.
bool is_valid_transform(const KeyTransform& transform, int head_dim);

/// Codebooks of all layers and KV heads of one model. Immutable in use, so shared by threads.
///
/// Of one head: for each sub-vector of 4 channels 64 centroid values [channel][centroid], so that a
/// vector register holds one channel of all centroids, and 16 halved squared norms; then the
/// transform: head_dim channel numbers (as floats) and head_dim scales.
class KeyCodebooks {
 public:
  KeyCodebooks() = default;
  /// All centroids zero. Head sizes must be multiples of 32 up to 512 (kUnsupported otherwise).
  static Result<KeyCodebooks> create(KeyCodeKind kind, std::vector<KvLayerShape> layers);

  KeyCodeKind kind() const { return kind_; }
  const std::vector<KvLayerShape>& layers() const { return layers_; }
  bool empty() const { return layers_.empty(); }

  /// Values of one head: num_sub * kSubFloats, then the transform.
  std::span<const float> head(int layer, int kv_head) const;
  /// Replaces the centroids of one head ([sub][channel][centroid], of transformed keys) and
  /// computes their norms. The transform must be valid.
  void set_head(int layer, int kv_head, std::span<const float> centroids,
                const KeyTransform& transform);
  /// The same without a transform.
  void set_head(int layer, int kv_head, std::span<const float> centroids);
  /// The transform of one head.
  KeyTransform transform(int layer, int kv_head) const;

  static constexpr int kSubFloats = (kKeySubDim + 1) * kKeyCentroids;

 private:
  KeyCodeKind kind_ = KeyCodeKind::kProduct;
  std::vector<KvLayerShape> layers_;
  std::vector<size_t> layer_offset_;
  std::vector<float> values_;
};

/// Codes `num_tokens` keys (rows of `head_dim` floats, `stride` floats apart, after RoPE) as rows
/// first_row .. of a page's codes. A page's codes are groups of 16 tokens; a group holds for each
/// pair of sub-vectors 16 bytes, one a token: low nibble the even, high nibble the odd one. A byte
/// belongs to one token, so rows may be written one at a time. `book` is KeyCodebooks::head().
void encode_keys(std::span<const float> book, int head_dim, const float* keys, size_t stride,
                 int num_tokens, int first_row, std::byte* page_codes);

/// The centroids that a row's code stands for; the scan's scores approximate dot products with it.
void decode_key(std::span<const float> book, int head_dim, const std::byte* page_codes, int row,
                float* key);

/// Look-up tables of one KV head's query group: per query and sub-vector 16 entries of 8 bits.
/// score = bias + scale * sum of entries. Reuse the object to save allocations.
struct KeyScanTables {
  int num_queries = 0;
  int head_dim = 0;
  std::vector<uint8_t> entries;    ///< [query][even sub-vectors, then odd][16]
  std::vector<float> bias, scale;  ///< by query
};

/// Fills `tables` for `num_queries` queries ([query][head_dim] after RoPE, `stride` floats apart).
/// Scores come in the queries' own scale: multiply queries by the attention scale for logits.
/// The error of a score is at most head_dim / 4 half steps of `scale`.
void build_scan_tables(std::span<const float> book, int head_dim, const float* queries,
                       size_t stride, int num_queries, KeyScanTables& tables);

/// Scores the first `num_tokens` rows of a page for each query: scores[q * score_stride + row].
/// About three instructions a token and query; reads head_dim / 8 bytes a token.
void scan_key_codes(const KeyScanTables& tables, const std::byte* page_codes, int num_tokens,
                    float* scores, size_t score_stride);

/// The same for a list of pages, `num_tokens` rows in all, of which only the last page may be
/// partly filled; the row order of `scores` is the pages'. Prefetches, since a sequence's pages lie
/// apart in memory.
void scan_key_code_pages(const KeyScanTables& tables, std::span<const std::byte* const> pages,
                         int block_tokens, int num_tokens, float* scores, size_t score_stride);

/// Max over a group: scores[row] = max over queries of in[q * stride + row].
void max_over_queries(const float* in, size_t stride, int num_queries, int num_tokens,
                      float* scores);

/// Scalar references of the two kernels, for tests on every target.
void encode_keys_reference(std::span<const float> book, int head_dim, const float* keys,
                           size_t stride, int num_tokens, int first_row, std::byte* page_codes);
void scan_key_codes_reference(const KeyScanTables& tables, const std::byte* page_codes,
                              int num_tokens, float* scores, size_t score_stride);

}  // namespace ikv
