// Inner functions of attention over one run of cache rows, one table per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_isa.h"
#include "core/kv_format.h"

namespace ikv {

/// Entries of one run: what one thread softmaxes before runs are merged. Fixed, since results
/// depend on it; small enough that rows stay in the cache between keys and values.
inline constexpr int kRunEntries = 256;
/// Kernels read and write whole vectors: run buffers are longer by this much.
inline constexpr int kRunSlack = 16;
inline constexpr int kRunCapacity = kRunEntries + kRunSlack;

/// The queries of one group, rotated for the keys that they meet. Integer planes serve int8 and
/// int4 keys: 8 bits for a query are too coarse, 16 leave an error of about 1e-5 of |q||k|.
struct QueryView {
  int group = 0;
  int head_dim = 0;
  float scale = 0.0f;
  const float* q = nullptr;  ///< [group][head_dim]
  /// Null where kernels work in floats. [group][head_dim]: q ~ (256 * high + low) * step.
  const int8_t* high = nullptr;
  const int8_t* low = nullptr;
  const float* steps = nullptr;  ///< [group]; `scale` multiplied in
  const int32_t* bias =
      nullptr;  ///< [group]: 128 * sum(q / step), the share of keys biased to unsigned
};

/// Rows that will be read soon: pages lie apart, so that the hardware does not foresee them.
struct RowStream {
  const uint8_t* const* keys = nullptr;
  const uint8_t* const* values = nullptr;
  int count = 0;
  int key_lines = 1;  ///< cache lines of a row
  int value_lines = 1;
};

/// Keys of consecutive entries of a run in one format.
struct KeyRows {
  const uint8_t* const* rows = nullptr;
  const uint16_t* scales = nullptr;      ///< int8: one half per entry
  const uint8_t* page_scales = nullptr;  ///< int4: steps, then minima by channel, halves
  int count = 0;
  int first = 0;                    ///< index of the first in its run
  const RowStream* next = nullptr;  ///< optional: rows to prefetch meanwhile, as many a key
};

/// Values of consecutive entries of a run in one format.
struct ValueRows {
  const uint8_t* const* rows = nullptr;
  const uint16_t* scales = nullptr;        ///< int8: one half per entry
  const uint8_t* const* params = nullptr;  ///< int4: step and minimum per 32 channels, halves
  int count = 0;
};

/// Each result depends on its own entry and query alone, but for `values`, which adds in order.
struct AttentionKernels {
  /// Splits a query into two planes of bytes; returns the step and the sum of the integers. Null
  /// where kernels need none.
  float (*quantise)(const float* q, int head_dim, int8_t* high, int8_t* low, int32_t* sum);
  /// logits[g * stride + i] = scale * q_g . k_i, by KvFormat. May write up to kRunSlack - 1 floats
  /// after the last.
  void (*score[5])(const QueryView& query, const KeyRows& keys, float* logits, size_t stride);
  /// Finite where it was not (a NaN becomes the lowest float), then cap * tanh(x / cap) if cap > 0.
  void (*finish_logits)(float* logits, int count, float cap);
  /// x = exp(x - max x) and its sum; entries after `count` up to the next 16 become 0.
  void (*softmax)(float* x, int count, float* max, float* sum);
  /// out[g * head_dim + d] += sum over i of p[g * stride + i] * v_i[d], by KvFormat.
  void (*values[5])(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                    float* out);
};

const AttentionKernels& attention_kernels(CpuIsa isa);

const AttentionKernels& attention_kernels_portable();
#if defined(__x86_64__)
const AttentionKernels& attention_kernels_avx2();
const AttentionKernels& attention_kernels_avx512();
#endif

}  // namespace ikv
