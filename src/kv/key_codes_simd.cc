// SIMD kernels of key codes, compiled for each target by Highway and chosen at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kv/key_codes_simd.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
// After foreach_target.
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kv/key_codes.h"
#include "kv/key_transform_view.h"

HWY_BEFORE_NAMESPACE();
namespace ikv::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

// One lane cannot look up 16 bytes: the reference is the kernel.
void scan(const KeyScanTables& tables, const std::byte* page_codes, int num_tokens, float* scores,
          size_t score_stride) {
  scan_key_codes_reference(tables, page_codes, num_tokens, scores, score_stride);
}

void encode(std::span<const float> book, int head_dim, const float* keys, size_t stride,
            int num_tokens, int first_row, std::byte* codes) {
  encode_keys_reference(book, head_dim, keys, stride, num_tokens, first_row, codes);
}

#else

/// Sums of one group of 16 tokens for one query. Each 128-bit block of a vector looks up another
/// pair of sub-vectors for the same 16 tokens; blocks are added at the end.
HWY_ATTR void sum_group(const uint8_t* HWY_RESTRICT even, const uint8_t* HWY_RESTRICT odd,
                        const uint8_t* HWY_RESTRICT codes, size_t num_pairs,
                        uint16_t* HWY_RESTRICT sums) {
  const hn::CappedTag<uint8_t, 64> d8;
  const hn::Repartition<uint16_t, decltype(d8)> d16;
  const size_t n = hn::Lanes(d8);
  const auto low = hn::Set(d8, 15);
  const auto low_byte = hn::Set(d16, 0x00FF);
  // At most 64 * 255 * 2 per token for the largest head: no overflow of 16 bits.
  auto even_tokens = hn::Zero(d16);
  auto odd_tokens = hn::Zero(d16);
  for (size_t i = 0; i < num_pairs * 16; i += n) {
    const auto code = hn::LoadU(d8, codes + i);
    const auto a = hn::TableLookupBytes(hn::LoadU(d8, even + i), hn::And(code, low));
    const auto b = hn::TableLookupBytes(
        hn::LoadU(d8, odd + i),
        hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, code))), low));
    const auto a16 = hn::BitCast(d16, a);
    const auto b16 = hn::BitCast(d16, b);
    even_tokens = hn::Add(even_tokens, hn::Add(hn::And(a16, low_byte), hn::And(b16, low_byte)));
    odd_tokens = hn::Add(odd_tokens, hn::Add(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
  }
  HWY_ALIGN uint16_t parts[2][32];
  hn::Store(even_tokens, d16, parts[0]);
  hn::Store(odd_tokens, d16, parts[1]);
  for (size_t t = 0; t < 8; ++t) {
    uint16_t e = parts[0][t], o = parts[1][t];
    for (size_t block = 1; block < n / 16; ++block) {
      e = static_cast<uint16_t>(e + parts[0][block * 8 + t]);
      o = static_cast<uint16_t>(o + parts[1][block * 8 + t]);
    }
    sums[2 * t] = e;
    sums[2 * t + 1] = o;
  }
}

HWY_ATTR void scan(const KeyScanTables& tables, const std::byte* page_codes, int num_tokens,
                   float* scores, size_t score_stride) {
  const size_t num_pairs = static_cast<size_t>(tables.head_dim) / 8;
  const auto* codes = reinterpret_cast<const uint8_t*>(page_codes);
  for (int begin = 0; begin < num_tokens; begin += 16) {
    const int count = std::min(16, num_tokens - begin);
    const uint8_t* group = codes + static_cast<size_t>(begin) * num_pairs;
    for (int q = 0; q < tables.num_queries; ++q) {
      const uint8_t* even = tables.entries.data() + static_cast<size_t>(q) * num_pairs * 32;
      HWY_ALIGN uint16_t sums[16];
      sum_group(even, even + num_pairs * 16, group, num_pairs, sums);
      const float bias = tables.bias[q], scale = tables.scale[q];
      float* out = scores + static_cast<size_t>(q) * score_stride + begin;
      if (count == 16) {
        for (int t = 0; t < 16; ++t) out[t] = bias + scale * static_cast<float>(sums[t]);
      } else {
        for (int t = 0; t < count; ++t) out[t] = bias + scale * static_cast<float>(sums[t]);
      }
    }
  }
}

/// Nearest of 16 centroids; the first of equals, as in the reference.
HWY_ATTR uint32_t nearest(const float* HWY_RESTRICT sub, const float* HWY_RESTRICT key) {
  const hn::CappedTag<float, kKeyCentroids> d;
  const size_t n = hn::Lanes(d);
  HWY_ALIGN float distances[kKeyCentroids];
  auto lowest = hn::Set(d, 0.0f);
  for (size_t c = 0; c < kKeyCentroids; c += n) {
    auto distance = hn::LoadU(d, sub + kKeySubDim * kKeyCentroids + c);
    for (int k = 0; k < kKeySubDim; ++k) {
      // Not fused, so that every target finds the same code.
      distance = hn::Sub(distance, hn::Mul(hn::Set(d, key[k]), hn::LoadU(d, sub + k * 16 + c)));
    }
    hn::Store(distance, d, distances + c);
    lowest = c == 0 ? distance : hn::Min(lowest, distance);
  }
  const auto minimum = hn::MinOfLanes(d, lowest);
  for (size_t c = 0; c < kKeyCentroids; c += n) {
    const intptr_t found = hn::FindFirstTrue(d, hn::Eq(hn::Load(d, distances + c), minimum));
    if (found >= 0) return static_cast<uint32_t>(c) + static_cast<uint32_t>(found);
  }
  return 0;  // NaN in the key: any code does
}

HWY_ATTR void encode(std::span<const float> book, int head_dim, const float* keys, size_t stride,
                     int num_tokens, int first_row, std::byte* page_codes) {
  auto* codes = reinterpret_cast<uint8_t*>(page_codes);
  const size_t num_pairs = static_cast<size_t>(head_dim) / 8;
  const TransformView transform(book, head_dim);
  float key[kMaxKeyHeadDim];
  for (int t = 0; t < num_tokens; ++t) {
    transform.apply_to_key(keys + static_cast<size_t>(t) * stride, key);
    const size_t row = static_cast<size_t>(first_row + t);
    uint8_t* out = codes + row / 16 * num_pairs * 16 + row % 16;
    for (size_t p = 0; p < num_pairs; ++p) {
      const float* sub = book.data() + 2 * p * KeyCodebooks::kSubFloats;
      const uint32_t low = nearest(sub, key + p * 8);
      const uint32_t high = nearest(sub + KeyCodebooks::kSubFloats, key + p * 8 + 4);
      out[p * 16] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace ikv::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ikv {

HWY_EXPORT(scan);
HWY_EXPORT(encode);

void scan_key_codes(const KeyScanTables& tables, const std::byte* page_codes, int num_tokens,
                    float* scores, size_t score_stride) {
  HWY_DYNAMIC_DISPATCH(scan)(tables, page_codes, num_tokens, scores, score_stride);
}

void encode_keys(std::span<const float> book, int head_dim, const float* keys, size_t stride,
                 int num_tokens, int first_row, std::byte* page_codes) {
  HWY_DYNAMIC_DISPATCH(encode)
  (book, head_dim, keys, stride, num_tokens, first_row, page_codes);
}

}  // namespace ikv
#endif  // HWY_ONCE
