// Attention kernels over runs in eight-float vectors. See vector_math-inl.h.

namespace ikv::IKV_ATTENTION_NAMESPACE {

/// Rows of a tile of eight keys; where fewer are left, the last one is repeated.
IKV_INLINE void take_rows8(const KeyRows& keys, int begin, const uint8_t** rows) {
  for (int j = 0; j < 8; ++j) {
    rows[j] = keys.rows[begin + j < keys.count ? begin + j : keys.count - 1];
  }
}

/// logits of eight decoded keys [8][head_dim] for one query.
IKV_INLINE F8 dot_8(const float* q, const float* k, int n) {
  F8 sums[8];
  for (int j = 0; j < 8; ++j) sums[j] = set8(0.0f);
  for (int d = 0; d < n; d += 8) {
    const F8 x = load8(q + d);
    for (int j = 0; j < 8; ++j) sums[j] = mul_add(x, load8(k + j * n + d), sums[j]);
  }
  return sum_lanes_of_8(sums);
}

template <KvFormat kFormat>
void score(const QueryView& query, const KeyRows& keys, float* logits, size_t stride) {
  const int n = query.head_dim;
  float k[8 * kMaxHeadDim];
  float steps[kMaxHeadDim], minima[kMaxHeadDim];
  if constexpr (kFormat == KvFormat::kInt4) {
    for (int d = 0; d < n; ++d) {
      steps[d] = half_float(keys.page_scales + d * 2);
      minima[d] = half_float(keys.page_scales + (n + d) * 2);
    }
  }
  const uint8_t* rows[8];
  for (int begin = 0; begin < keys.count; begin += 8) {
    take_rows8(keys, begin, rows);
    F8 scales = set8(query.scale);
    for (int j = 0; j < 8; ++j) {
      for (int d = 0; d < n; d += 8) {
        if constexpr (kFormat == KvFormat::kInt4) {
          store8(k + j * n + d,
                 mul_add(load_codes8(rows[j], d), load8(steps + d), load8(minima + d)));
        } else {
          store8(k + j * n + d, load_plain8<kFormat>(rows[j], d));
        }
      }
      if constexpr (kFormat == KvFormat::kInt8) {
        if (begin + j < keys.count) {
          scales[j] *= half_float(reinterpret_cast<const uint8_t*>(keys.scales + begin + j));
        }
      }
    }
    for (int g = 0; g < query.group; ++g) {
      store8(logits + static_cast<size_t>(g) * stride + begin,
             dot_8(query.q + g * n, k, n) * scales);
    }
  }
}

inline void finish_logits(float* x, int count, float cap) {
  for (int i = 0; i < count; i += 8) store8(x + i, finish8(load8(x + i), cap));
}

inline void softmax(float* x, int count, float* max, float* sum) {
  const int padded = (count + 15) / 16 * 16;
  for (int i = count; i < padded; ++i) x[i] = -__builtin_inff();
  F8 most = load8(x);
  for (int i = 8; i < padded; i += 8) most = max8(load8(x + i), most);
  const F8 shift = set8(max_lane(most));
  F8 total = set8(0.0f);
  for (int i = 0; i < padded; i += 8) {
    const F8 e = exp_negative(load8(x + i) - shift);
    total += e;
    store8(x + i, e);
  }
  *max = shift[0];
  *sum = sum_lanes(total);
}

/// Eight values of a row, channels d .. d + 7.
template <KvFormat kFormat>
IKV_INLINE F8 load_value8(const uint8_t* row, const uint8_t* params, int d) {
  if constexpr (kFormat == KvFormat::kInt4) {
    const uint8_t* p = params + d / 32 * 4;
    return mul_add(load_codes8(row, d), set8(half_float(p)), set8(half_float(p + 2)));
  } else {
    (void)params;
    return load_plain8<kFormat>(row, d);
  }
}

/// 32 channels for kQueries queries; `weights` have the values' scales multiplied in.
template <KvFormat kFormat, int kQueries>
IKV_INLINE void add_block(const ValueRows& values, const float (*weights)[kRunCapacity], int begin,
                          int head_dim, float* out) {
  F8 sums[kQueries][4];
  for (int g = 0; g < kQueries; ++g) {
    for (int j = 0; j < 4; ++j) sums[g][j] = load8(out + g * head_dim + begin + j * 8);
  }
  for (int i = 0; i < values.count; ++i) {
    const uint8_t* params = kFormat == KvFormat::kInt4 ? values.params[i] : nullptr;
    for (int j = 0; j < 4; ++j) {
      const F8 v = load_value8<kFormat>(values.rows[i], params, begin + j * 8);
      for (int g = 0; g < kQueries; ++g) sums[g][j] = mul_add(set8(weights[g][i]), v, sums[g][j]);
    }
  }
  for (int g = 0; g < kQueries; ++g) {
    for (int j = 0; j < 4; ++j) store8(out + g * head_dim + begin + j * 8, sums[g][j]);
  }
}

template <KvFormat kFormat, int kQueries>
void add_queries(const ValueRows& values, const float* p, size_t stride, int head_dim, float* out) {
  float weights[kQueries][kRunCapacity];
  for (int g = 0; g < kQueries; ++g) {
    for (int i = 0; i < values.count; ++i) {
      float scale = 1.0f;
      if constexpr (kFormat == KvFormat::kInt8) {
        scale = half_float(reinterpret_cast<const uint8_t*>(values.scales + i));
      }
      weights[g][i] = p[static_cast<size_t>(g) * stride + static_cast<size_t>(i)] * scale;
    }
  }
  for (int d = 0; d < head_dim; d += 32) {
    add_block<kFormat, kQueries>(values, weights, d, head_dim, out);
  }
}

/// Two queries at a time: more sums would not fit into 16 registers.
template <KvFormat kFormat>
void values(const ValueRows& rows, const float* p, size_t stride, int group, int head_dim,
            float* out) {
  int g = 0;
  for (; g + 2 <= group; g += 2) {
    add_queries<kFormat, 2>(rows, p + static_cast<size_t>(g) * stride, stride, head_dim,
                            out + g * head_dim);
  }
  if (g < group) {
    add_queries<kFormat, 1>(rows, p + static_cast<size_t>(g) * stride, stride, head_dim,
                            out + g * head_dim);
  }
}

constexpr AttentionKernels kDecodeTable = {
    nullptr,
    {score<KvFormat::kF32>, score<KvFormat::kF16>, score<KvFormat::kBF16>, score<KvFormat::kInt8>,
     score<KvFormat::kInt4>},
    finish_logits,
    softmax,
    {values<KvFormat::kF32>, values<KvFormat::kF16>, values<KvFormat::kBF16>,
     values<KvFormat::kInt8>, values<KvFormat::kInt4>}};

}  // namespace ikv::IKV_ATTENTION_NAMESPACE
