// Attention kernels in plain C++, compiled for any machine and again for AVX2. Loops are written so
// that the compiler makes vectors of them. Included outside of any namespace by one source file per
// target, which defines IKV_ATTENTION_NAMESPACE; includes are the including file's.

namespace ikv::IKV_ATTENTION_NAMESPACE {

constexpr int kMaxHeadDim = 512;

inline float half_float(const uint8_t* p) {
  uint16_t half;
  std::memcpy(&half, p, 2);
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(half & 0x7FFFu) << 13;
  float x;
  std::memcpy(&x, &rest, 4);
  x *= 0x1p112f;
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  bits |= sign | ((half & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u);
  std::memcpy(&x, &bits, 4);
  return x;
}

inline float half_float(uint16_t half) {
  uint8_t bytes[2];
  std::memcpy(bytes, &half, 2);
  return half_float(bytes);
}

/// exp(x) for x <= 0 with a relative error of about 1e-7: 2^n times a polynomial on
/// [-ln2/2, ln2/2] (Cody and Waite's reduction; Taylor's series to x^7 / 7!).
inline float exp_negative(float x) {
  const float y = x > -87.0f ? x : -87.0f;
  const float t = y * 1.44269504f + 12582912.0f;  // the adder rounds to an integer
  int32_t n;
  std::memcpy(&n, &t, 4);
  const float whole = t - 12582912.0f;
  const float r = (y - whole * 0.693145752f) - whole * 1.42860677e-6f;
  float p = 1.98412698e-4f;
  p = p * r + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const int32_t bits = (n - 0x4B400000 + 127) << 23;
  float power;
  std::memcpy(&power, &bits, 4);
  return x > -87.0f ? p * power : 0.0f;
}

// Rows as floats.

template <KvFormat kFormat>
inline void load_plain(const uint8_t* row, int n, float* out) {
  if constexpr (kFormat == KvFormat::kF32) {
    std::memcpy(out, row, static_cast<size_t>(n) * 4);
  } else if constexpr (kFormat == KvFormat::kF16) {
    for (int i = 0; i < n; ++i) out[i] = half_float(row + i * 2);
  } else {
    for (int i = 0; i < n; ++i) {
      uint16_t half;
      std::memcpy(&half, row + i * 2, 2);
      const uint32_t bits = static_cast<uint32_t>(half) << 16;
      std::memcpy(out + i, &bits, 4);
    }
  }
}

inline void load_nibbles(const uint8_t* row, int n, uint8_t* codes) {
  for (int g = 0; g < n; g += 32) {
    for (int j = 0; j < 16; ++j) {
      codes[g + j] = row[g / 2 + j] & 15;
      codes[g + 16 + j] = row[g / 2 + j] >> 4;
    }
  }
}

// Sixteen partial sums in a fixed order.
inline float dot(const float* a, const float* b, int n) {
  float sums[16] = {};
  for (int i = 0; i < n; i += 16) {
    for (int j = 0; j < 16; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  return sums[0];
}

template <KvFormat kFormat>
void score_plain(const QueryView& query, const KeyRows& keys, float* logits, size_t stride) {
  float k[kMaxHeadDim];
  for (int i = 0; i < keys.count; ++i) {
    load_plain<kFormat>(keys.rows[i], query.head_dim, k);
    for (int g = 0; g < query.group; ++g) {
      logits[static_cast<size_t>(g) * stride + static_cast<size_t>(i)] =
          query.scale * dot(query.q + g * query.head_dim, k, query.head_dim);
    }
  }
}

inline int32_t dot_int(const int16_t* q, const int8_t* k, int n) {
  int32_t sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<int32_t>(q[i]) * k[i];
  return sum;
}

void score_int8(const QueryView& query, const KeyRows& keys, float* logits, size_t stride) {
  for (int i = 0; i < keys.count; ++i) {
    const auto* k = reinterpret_cast<const int8_t*>(keys.rows[i]);
    const float scale = half_float(keys.scales[i]);
    for (int g = 0; g < query.group; ++g) {
      const int32_t sum = dot_int(query.q16 + g * query.head_dim, k, query.head_dim);
      logits[static_cast<size_t>(g) * stride + static_cast<size_t>(i)] =
          static_cast<float>(sum) * (query.steps[g] * scale);
    }
  }
}

void score_int4(const QueryView& query, const KeyRows& keys, float* logits, size_t stride) {
  const int n = query.head_dim;
  float steps[kMaxHeadDim], lows[kMaxHeadDim], q[kMaxHeadDim], k[kMaxHeadDim];
  uint8_t codes[kMaxHeadDim];
  for (int d = 0; d < n; ++d) {
    steps[d] = half_float(keys.page_scales + d * 2);
    lows[d] = half_float(keys.page_scales + (n + d) * 2);
  }
  for (int g = 0; g < query.group; ++g) {
    // The steps go into the query, the minima are the same for all rows of the page.
    for (int d = 0; d < n; ++d) q[d] = query.q[g * n + d] * steps[d];
    const float low = dot(query.q + g * n, lows, n);
    for (int i = 0; i < keys.count; ++i) {
      load_nibbles(keys.rows[i], n, codes);
      for (int d = 0; d < n; ++d) k[d] = static_cast<float>(codes[d]);
      logits[static_cast<size_t>(g) * stride + static_cast<size_t>(i)] =
          query.scale * (dot(q, k, n) + low);
    }
  }
}

void finish_logits(float* x, int count, float cap) {
  constexpr float kMost = 3.402823466e+38f;
  for (int i = 0; i < count; ++i) {
    x[i] = x[i] > -kMost ? x[i] : -kMost;  // also what a NaN becomes
    x[i] = x[i] < kMost ? x[i] : kMost;
  }
  if (cap <= 0.0f) return;
  for (int i = 0; i < count; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

void softmax(float* x, int count, float* max, float* sum) {
  const int padded = (count + 15) / 16 * 16;
  for (int i = count; i < padded; ++i) x[i] = -INFINITY;
  float maxima[16], sums[16] = {};
  for (float& m : maxima) m = -INFINITY;
  for (int i = 0; i < padded; i += 16) {
    for (int j = 0; j < 16; ++j) maxima[j] = maxima[j] > x[i + j] ? maxima[j] : x[i + j];
  }
  float most = maxima[0];
  for (int j = 1; j < 16; ++j) most = most > maxima[j] ? most : maxima[j];
  for (int i = 0; i < padded; i += 16) {
    for (int j = 0; j < 16; ++j) {
      x[i + j] = exp_negative(x[i + j] - most);
      sums[j] += x[i + j];
    }
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) sums[j] += sums[j + width];
  }
  *max = most;
  *sum = sums[0];
}

template <KvFormat kFormat>
void values_plain(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                  float* out) {
  float v[kMaxHeadDim];
  for (int i = 0; i < values.count; ++i) {
    load_plain<kFormat>(values.rows[i], head_dim, v);
    for (int g = 0; g < group; ++g) {
      const float weight = p[static_cast<size_t>(g) * stride + static_cast<size_t>(i)];
      float* o = out + g * head_dim;
      for (int d = 0; d < head_dim; ++d) o[d] += weight * v[d];
    }
  }
}

void values_int8(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                 float* out) {
  float v[kMaxHeadDim];
  for (int i = 0; i < values.count; ++i) {
    const auto* row = reinterpret_cast<const int8_t*>(values.rows[i]);
    const float scale = half_float(values.scales[i]);
    for (int d = 0; d < head_dim; ++d) v[d] = static_cast<float>(row[d]);
    for (int g = 0; g < group; ++g) {
      const float weight = p[static_cast<size_t>(g) * stride + static_cast<size_t>(i)] * scale;
      float* o = out + g * head_dim;
      for (int d = 0; d < head_dim; ++d) o[d] += weight * v[d];
    }
  }
}

void values_int4(const ValueRows& values, const float* p, size_t stride, int group, int head_dim,
                 float* out) {
  float v[kMaxHeadDim];
  uint8_t codes[kMaxHeadDim];
  for (int i = 0; i < values.count; ++i) {
    load_nibbles(values.rows[i], head_dim, codes);
    for (int b = 0; b < head_dim; b += 32) {
      const float step = half_float(values.params[i] + b / 32 * 4);
      const float low = half_float(values.params[i] + b / 32 * 4 + 2);
      for (int j = 0; j < 32; ++j) v[b + j] = static_cast<float>(codes[b + j]) * step + low;
    }
    for (int g = 0; g < group; ++g) {
      const float weight = p[static_cast<size_t>(g) * stride + static_cast<size_t>(i)];
      float* o = out + g * head_dim;
      for (int d = 0; d < head_dim; ++d) o[d] += weight * v[d];
    }
  }
}

}  // namespace ikv::IKV_ATTENTION_NAMESPACE

#define IKV_ATTENTION_TABLE                                                             \
  {                                                                                     \
    {IKV_ATTENTION_NAMESPACE::score_plain<KvFormat::kF32>,                              \
     IKV_ATTENTION_NAMESPACE::score_plain<KvFormat::kF16>,                              \
     IKV_ATTENTION_NAMESPACE::score_plain<KvFormat::kBF16>,                             \
     IKV_ATTENTION_NAMESPACE::score_int8, IKV_ATTENTION_NAMESPACE::score_int4},         \
        IKV_ATTENTION_NAMESPACE::finish_logits, IKV_ATTENTION_NAMESPACE::softmax, {     \
      IKV_ATTENTION_NAMESPACE::values_plain<KvFormat::kF32>,                            \
          IKV_ATTENTION_NAMESPACE::values_plain<KvFormat::kF16>,                        \
          IKV_ATTENTION_NAMESPACE::values_plain<KvFormat::kBF16>,                       \
          IKV_ATTENTION_NAMESPACE::values_int8, IKV_ATTENTION_NAMESPACE::values_int4    \
    }                                                                                   \
  }
