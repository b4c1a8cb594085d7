// Page digests: a sealed page's keys in a few numbers per channel, in int8.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ikv {

/// A digest unpacked: mean and standard deviation of each channel over the page's `num_tokens`
/// keys. Arrays of head_dim floats that the caller owns.
struct PageMoments {
  float* mean = nullptr;
  float* deviation = nullptr;
  int num_tokens = 0;
};

/// Packed: head_dim int8 means, head_dim uint8 deviations, then scale of the means and of the
/// deviations (f32) and the token count (u32): 140 bytes at head size 64, 1.7 % of an f16 page of
/// 32 tokens. The error of a mean is at most max|mean| / 254, of a deviation max deviation / 510.
inline size_t page_digest_bytes(int head_dim) {
  return static_cast<size_t>(head_dim) * 2 + 12;
}

/// Digest of `num_tokens` >= 1 keys (rows of `head_dim` floats, `stride` apart, after RoPE).
void make_page_digest(const float* keys, size_t stride, int num_tokens, int head_dim,
                      std::byte* digest);

/// Unpacks a digest into the arrays of `moments` and sets its count.
void read_page_digest(const std::byte* digest, int head_dim, PageMoments& moments);

/// Per-channel minimum and maximum of keys, for scorers that ask for them; not stored.
void page_min_max(const float* keys, size_t stride, int num_tokens, int head_dim, float* minimum,
                  float* maximum);

}  // namespace ikv
