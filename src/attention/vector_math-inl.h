// Vectors of eight floats by the compilers' vector extension, for any machine and for AVX2. The
// -inl.h files of attention are included, outside of any namespace, by one source file per target,
// which defines IKV_ATTENTION_NAMESPACE and, for AVX2, IKV_ATTENTION_AVX2; includes are that
// file's.

#define IKV_INLINE inline __attribute__((always_inline))

namespace ikv::IKV_ATTENTION_NAMESPACE {

using F8 = float __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));

constexpr int kMaxHeadDim = 512;
constexpr float kLargest = 3.402823466e+38f;

IKV_INLINE F8 load8(const float* p) {
  F8 x;
  __builtin_memcpy(&x, p, sizeof(x));
  return x;
}

IKV_INLINE void store8(float* p, F8 x) {
  __builtin_memcpy(p, &x, sizeof(x));
}

IKV_INLINE F8 set8(float x) {
  return F8{x, x, x, x, x, x, x, x};
}

IKV_INLINE F8 mul_add(F8 a, F8 b, F8 c) {
#ifdef IKV_ATTENTION_AVX2
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

/// b where either is a NaN.
IKV_INLINE F8 max8(F8 a, F8 b) {
  return a > b ? a : b;
}

IKV_INLINE F8 min8(F8 a, F8 b) {
  return a < b ? a : b;
}

/// Sum of all lanes in a fixed order.
IKV_INLINE float sum_lanes(F8 x) {
  const float a = (x[0] + x[4]) + (x[2] + x[6]);
  const float b = (x[1] + x[5]) + (x[3] + x[7]);
  return a + b;
}

IKV_INLINE float max_lane(F8 x) {
  float most = x[0];
  for (int i = 1; i < 8; ++i) most = most > x[i] ? most : x[i];
  return most;
}

/// Lane i of the result is the sum of all lanes of v[i].
IKV_INLINE F8 sum_lanes_of_8(const F8* v) {
  F8 pairs[4], quads[2];
  for (int i = 0; i < 4; ++i) {
    const F8 a = v[2 * i], b = v[2 * i + 1];
    pairs[i] = __builtin_shufflevector(a, b, 0, 8, 2, 10, 4, 12, 6, 14) +
               __builtin_shufflevector(a, b, 1, 9, 3, 11, 5, 13, 7, 15);
  }
  // Lanes (0 1), (2 3), (4 5), (6 7) of pairs[i] belong to v[2 i], v[2 i + 1].
  for (int i = 0; i < 2; ++i) {
    const F8 a = pairs[2 * i], b = pairs[2 * i + 1];
    quads[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +
               __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  }
  return __builtin_shufflevector(quads[0], quads[1], 0, 1, 2, 3, 8, 9, 10, 11) +
         __builtin_shufflevector(quads[0], quads[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

/// exp(x) for x <= 0 with a relative error of about 1e-7: 2^n times a polynomial on
/// [-ln2/2, ln2/2] (Cody and Waite's reduction, Taylor's series to x^7 / 7!); 0 below e^-87.
IKV_INLINE F8 exp_negative(F8 x) {
  const F8 y = max8(x, set8(-87.0f));
  // The adder rounds to an integer; its low bits are the integer.
  const F8 t = mul_add(y, set8(1.44269504f), set8(12582912.0f));
  const F8 n = t - set8(12582912.0f);
  F8 r = mul_add(n, set8(-0.693145752f), y);
  r = mul_add(n, set8(-1.42860677e-6f), r);
  F8 p = set8(1.98412698e-4f);
  p = mul_add(p, r, set8(1.38888889e-3f));
  p = mul_add(p, r, set8(8.33333333e-3f));
  p = mul_add(p, r, set8(4.16666667e-2f));
  p = mul_add(p, r, set8(1.66666667e-1f));
  p = mul_add(p, r, set8(0.5f));
  p = mul_add(p, r, set8(1.0f));
  p = mul_add(p, r, set8(1.0f));
  I8 bits;
  __builtin_memcpy(&bits, &t, sizeof(bits));
  bits = (bits - 0x4B400000 + 127) << 23;
  F8 power;
  __builtin_memcpy(&power, &bits, sizeof(power));
  return x > set8(-87.0f) ? p * power : set8(0.0f);
}

/// Finite, then cap * tanh(x / cap) if cap > 0: tanh |t| = (1 - e) / (1 + e), e = exp(-2 |t|).
IKV_INLINE F8 finish8(F8 x, float cap) {
  const F8 y = min8(max8(x, set8(-kLargest)), set8(kLargest));
  if (cap <= 0.0f) return y;
  const F8 t = y * set8(1.0f / cap);
  const F8 size = max8(t, -t);
  const F8 e = exp_negative(size * set8(-2.0f));
  const F8 capped = set8(cap) * (set8(1.0f) - e) / (set8(1.0f) + e);
  return t < set8(0.0f) ? -capped : capped;
}

IKV_INLINE float half_float(const uint8_t* p) {
  uint16_t half;
  __builtin_memcpy(&half, p, 2);
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(half & 0x7FFFu) << 13;
  float x;
  __builtin_memcpy(&x, &rest, 4);
  x *= 0x1p112f;  // right for normal and subnormal numbers
  uint32_t bits;
  __builtin_memcpy(&bits, &x, 4);
  bits |= sign | ((half & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u);
  __builtin_memcpy(&x, &bits, 4);
  return x;
}

/// Eight numbers from index `i` of a row on.
template <KvFormat kFormat>
IKV_INLINE F8 load_plain8(const uint8_t* row, int i) {
  if constexpr (kFormat == KvFormat::kF32) {
    F8 x;
    __builtin_memcpy(&x, row + i * 4, sizeof(x));
    return x;
  } else if constexpr (kFormat == KvFormat::kF16) {
#ifdef IKV_ATTENTION_AVX2
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + i * 2)));
#else
    float x[8];
    for (int j = 0; j < 8; ++j) x[j] = half_float(row + (i + j) * 2);
    return load8(x);
#endif
  } else if constexpr (kFormat == KvFormat::kBF16) {
    uint16_t halves[8];
    __builtin_memcpy(halves, row + i * 2, 16);
    uint32_t bits[8];
    for (int j = 0; j < 8; ++j) bits[j] = uint32_t{halves[j]} << 16;
    F8 x;
    __builtin_memcpy(&x, bits, sizeof(x));
    return x;
  } else {
    static_assert(kFormat == KvFormat::kInt8);
#ifdef IKV_ATTENTION_AVX2
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(row + i))));
#else
    int8_t codes[8];
    __builtin_memcpy(codes, row + i, 8);
    float x[8];
    for (int j = 0; j < 8; ++j) x[j] = static_cast<float>(codes[j]);
    return load8(x);
#endif
  }
}

/// Int4 codes i .. i + 7 of a row as floats: 32 channels lie in 16 bytes, low nibbles first.
IKV_INLINE F8 load_codes8(const uint8_t* row, int i) {
  const uint8_t* bytes = row + i / 32 * 16 + i % 16;
  const int shift = i % 32 < 16 ? 0 : 4;
#ifdef IKV_ATTENTION_AVX2
  const __m256i wide =
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  const __m256i codes = _mm256_and_si256(_mm256_srli_epi32(wide, shift), _mm256_set1_epi32(15));
  return _mm256_cvtepi32_ps(codes);
#else
  float x[8];
  for (int j = 0; j < 8; ++j) x[j] = static_cast<float>(bytes[j] >> shift & 15);
  return load8(x);
#endif
}

}  // namespace ikv::IKV_ATTENTION_NAMESPACE
