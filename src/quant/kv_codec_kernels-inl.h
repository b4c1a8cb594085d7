// Body of one KvCodecKernels table. Included by one source file per instruction set, which defines
// IKV_CODEC_NAMESPACE and, where F16C may be used, IKV_CODEC_F16C. Loops are plain, so that the
// compiler makes vectors of them; no multiply-add is fused, so that all tables give the same bytes.
// No include guard and no includes: the including file has them, outside of the target's region.

namespace ikv::IKV_CODEC_NAMESPACE {

constexpr int kMaxHeadDim = 512;
constexpr int kMaxGroups = kMaxHeadDim / 32;
constexpr float kMaxHalf = 65504.0f;

inline uint32_t float_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

inline float bits_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}

inline float half_float(uint16_t half) {
  // Exponent and fraction moved to a float's place and scaled by 2^112 are right for normal and
  // subnormal numbers; infinity and NaN need the full exponent.
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(half & 0x7FFFu) << 13;
  const uint32_t finite = float_bits(bits_float(rest) * 0x1p112f);
  const uint32_t special = (half & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0u;
  return bits_float(sign | finite | special);
}

inline uint16_t float_half(float x) {
  const uint32_t bits = float_bits(x);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  const bool nan = magnitude > 0x7F800000u;
  const float clamped = bits_float(magnitude) < kMaxHalf ? bits_float(magnitude) : kMaxHalf;
  const uint32_t c = float_bits(clamped);
  // Adding 2^(e+13) with the result's exponent e (at least that of subnormal halves) makes the
  // float adder round to nearest even at the half's last bit.
  const uint32_t exponent = (c & 0x7F800000u) > 0x38800000u ? c & 0x7F800000u : 0x38800000u;
  const uint32_t magic = exponent + (13u << 23);
  const uint32_t rounded = float_bits(clamped + bits_float(magic)) - magic;
  const uint32_t half = rounded + (((exponent >> 23) - 113u) << 10);
  return static_cast<uint16_t>(sign | (nan ? 0x7E00u : half));
}

/// The smallest half that is not below x >= 0; 65504 at most.
inline uint16_t float_half_up(float x) {
  const uint16_t half = float_half(x);
  return static_cast<uint16_t>(half_float(half) < x && half < 0x7BFFu ? half + 1 : half);
}

inline uint16_t float_bfloat(float x) {
  const uint32_t bits = float_bits(x);
  const bool nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
  const uint32_t rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
  // Rounding must not turn a finite number into infinity.
  const bool overflow = (rounded & 0x7F800000u) == 0x7F800000u;
  return static_cast<uint16_t>((nan || overflow ? bits : rounded) >> 16 | (nan ? 0x40u : 0u));
}

inline void halves_to_floats(const uint8_t* in, int n, float* out) {
#ifdef IKV_CODEC_F16C
  for (int i = 0; i < n; i += 8) {
    _mm256_storeu_ps(
        out + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i * 2))));
  }
#else
  for (int i = 0; i < n; ++i) {
    uint16_t half;
    std::memcpy(&half, in + i * 2, 2);
    out[i] = half_float(half);
  }
#endif
}

inline void floats_to_halves(const float* in, int n, uint8_t* out) {
#ifdef IKV_CODEC_F16C
  const __m256 high = _mm256_set1_ps(kMaxHalf);
  const __m256 low = _mm256_set1_ps(-kMaxHalf);
  for (int i = 0; i < n; i += 8) {
    // The second operand is what min and max return for NaN: it stays.
    const __m256 x = _mm256_max_ps(low, _mm256_min_ps(high, _mm256_loadu_ps(in + i)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i * 2),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#else
  for (int i = 0; i < n; ++i) {
    const uint16_t half = float_half(in[i]);
    std::memcpy(out + i * 2, &half, 2);
  }
#endif
}

/// Nearest integer, ties to even, of |x| < 2^22, by the adder.
inline int32_t round_to_int(float x) {
  return static_cast<int32_t>(float_bits(x + 12582912.0f) - 0x4B400000u);
}

// Nibbles: 32 channels in 16 bytes, the low ones are channels 0..15, the high ones 16..31.
inline void pack_nibbles(const int32_t* codes, int n, uint8_t* out) {
  for (int g = 0; g < n; g += 32) {
    for (int j = 0; j < 16; ++j) {
      out[g / 2 + j] = static_cast<uint8_t>(codes[g + j] | codes[g + 16 + j] << 4);
    }
  }
}

inline void nibbles_to_floats(const uint8_t* in, int n, float* out) {
  for (int g = 0; g < n; g += 32) {
    for (int j = 0; j < 16; ++j) {
      const int byte = in[g / 2 + j];
      out[g + j] = static_cast<float>(byte & 15);
      out[g + 16 + j] = static_cast<float>(byte >> 4);
    }
  }
}

inline void decode_int4_key_row(const uint8_t* row, int n, const float* steps, const float* lows,
                                float* out) {
  nibbles_to_floats(row, n, out);
  for (int i = 0; i < n; ++i) out[i] = out[i] * steps[i] + lows[i];
}

inline void decode_int4_value_row(const uint8_t* row, const uint8_t* params, int n, float* out) {
  nibbles_to_floats(row, n, out);
  for (int g = 0; g < n; g += 32) {
    uint16_t p[2];
    std::memcpy(p, params + g / 32 * 4, 4);
    const float step = half_float(p[0]), low = half_float(p[1]);
    for (int j = 0; j < 32; ++j) out[g + j] = out[g + j] * step + low;
  }
}

inline void decode_int8_row(const uint8_t* row, const uint8_t* scale, int n, float* out) {
  uint16_t half;
  std::memcpy(&half, scale, 2);
  const float step = half_float(half);
  const auto* codes = reinterpret_cast<const int8_t*>(row);
  for (int i = 0; i < n; ++i) out[i] = static_cast<float>(codes[i]) * step;
}

inline void decode_bfloat_row(const uint8_t* row, int n, float* out) {
  for (int i = 0; i < n; ++i) {
    uint16_t bits;
    std::memcpy(&bits, row + i * 2, 2);
    out[i] = bits_float(static_cast<uint32_t>(bits) << 16);
  }
}

inline void decode(const KvPart& part, const uint8_t* rows, const uint8_t* scales, int first_row,
                   int num_rows, float* out, size_t stride) {
  const int n = part.head_dim;
  const size_t row_bytes = kv_row_bytes(part.format, n);
  float steps[kMaxHeadDim], lows[kMaxHeadDim];
  if (part.format == KvFormat::kInt4 && part.is_key) {
    halves_to_floats(scales, n, steps);
    halves_to_floats(scales + n * 2, n, lows);
  }
  for (int r = first_row; r < first_row + num_rows; ++r, out += stride) {
    const uint8_t* row = rows + static_cast<size_t>(r) * row_bytes;
    switch (part.format) {
      case KvFormat::kF32:
        std::memcpy(out, row, row_bytes);
        break;
      case KvFormat::kF16:
        halves_to_floats(row, n, out);
        break;
      case KvFormat::kBF16:
        decode_bfloat_row(row, n, out);
        break;
      case KvFormat::kInt8:
        decode_int8_row(row, scales + r * 2, n, out);
        break;
      case KvFormat::kInt4:
        if (part.is_key) {
          decode_int4_key_row(row, n, steps, lows, out);
        } else {
          decode_int4_value_row(row, scales + r * (n / 32) * 4, n, out);
        }
        break;
    }
  }
}

inline void store_plain(const KvPart& part, uint8_t* rows, int first_row, int num_rows,
                        const float* in, size_t stride) {
  const int n = part.head_dim;
  const size_t row_bytes = kv_row_bytes(part.format, n);
  for (int r = first_row; r < first_row + num_rows; ++r, in += stride) {
    uint8_t* row = rows + static_cast<size_t>(r) * row_bytes;
    if (part.format == KvFormat::kF32) {
      std::memcpy(row, in, row_bytes);
    } else if (part.format == KvFormat::kF16) {
      floats_to_halves(in, n, row);
    } else {
      for (int i = 0; i < n; ++i) {
        const uint16_t bits = float_bfloat(in[i]);
        std::memcpy(row + i * 2, &bits, 2);
      }
    }
  }
}

inline void encode_int8_row(const float* x, int n, uint8_t* row, uint8_t* scale) {
  // Sixteen maxima side by side, as the compiler may not reorder one running maximum.
  float most[16] = {};
  for (int i = 0; i < n; i += 16) {
    for (int j = 0; j < 16; ++j) {
      const float a = std::fabs(x[i + j]);
      most[j] = most[j] > a ? most[j] : a;
    }
  }
  float largest = 0.0f;
  for (const float m : most) largest = largest > m ? largest : m;
  const uint16_t half = float_half_up(largest / 127.0f);
  const float step = half_float(half);
  const float inverse = step > 0.0f ? 1.0f / step : 0.0f;
  std::memcpy(scale, &half, 2);
  for (int i = 0; i < n; ++i) {
    float y = x[i] * inverse;
    y = y < 127.0f ? y : 127.0f;  // also what a NaN becomes
    y = y > -127.0f ? y : -127.0f;
    row[i] = static_cast<uint8_t>(round_to_int(y));
  }
}

/// Step and minimum as stored, rounded to halves, and what encoding divides by.
struct Int4Params {
  float low, inverse;
};

inline Int4Params make_int4_params(float low, float high, uint16_t* step_half, uint16_t* low_half) {
  *low_half = float_half(low);
  Int4Params params;
  params.low = half_float(*low_half);
  const float range = high - params.low;
  *step_half = range > 0.0f ? float_half_up(range / 15.0f) : uint16_t{0};
  const float step = half_float(*step_half);
  // No step where all values are equal: codes stay 0.
  params.inverse = step > 0.0f ? 1.0f / step : 0.0f;
  return params;
}

inline int32_t int4_code(float x, float low, float inverse) {
  float y = (x - low) * inverse;
  y = y > 0.0f ? y : 0.0f;
  y = y < 15.0f ? y : 15.0f;
  return round_to_int(y);
}

inline void encode_int4_value_row(const float* x, int n, uint8_t* row, uint8_t* params) {
  int32_t codes[kMaxHeadDim];
  for (int g = 0; g < n; g += 32) {
    float lows[16], highs[16];
    for (int j = 0; j < 16; ++j) {
      const float a = x[g + j], b = x[g + 16 + j];
      lows[j] = a < b ? a : b;
      highs[j] = a > b ? a : b;
    }
    float low = lows[0], high = highs[0];
    for (int j = 1; j < 16; ++j) {
      low = low < lows[j] ? low : lows[j];
      high = high > highs[j] ? high : highs[j];
    }
    uint16_t stored[2];
    const Int4Params p = make_int4_params(low, high, &stored[0], &stored[1]);
    std::memcpy(params + g / 32 * 4, stored, 4);
    for (int j = 0; j < 32; ++j) codes[g + j] = int4_code(x[g + j], p.low, p.inverse);
  }
  pack_nibbles(codes, n, row);
}

/// Two passes over the rows, so that no copy of the page is kept: ranges by channel, then codes.
inline void encode_int4_keys(const KvPart& from, const uint8_t* from_rows,
                             const uint8_t* from_scales, int num_rows, uint8_t* rows,
                             uint8_t* scales) {
  const int n = from.head_dim;
  float x[kMaxHeadDim], lows[kMaxHeadDim], highs[kMaxHeadDim];
  decode(from, from_rows, from_scales, 0, 1, lows, 0);
  std::memcpy(highs, lows, sizeof(float) * static_cast<size_t>(n));
  for (int r = 1; r < num_rows; ++r) {
    decode(from, from_rows, from_scales, r, 1, x, 0);
    for (int i = 0; i < n; ++i) {
      lows[i] = lows[i] < x[i] ? lows[i] : x[i];
      highs[i] = highs[i] > x[i] ? highs[i] : x[i];
    }
  }
  float inverses[kMaxHeadDim];
  for (int i = 0; i < n; ++i) {
    uint16_t step_half, low_half;
    const Int4Params p = make_int4_params(lows[i], highs[i], &step_half, &low_half);
    lows[i] = p.low;
    inverses[i] = p.inverse;
    std::memcpy(scales + i * 2, &step_half, 2);
    std::memcpy(scales + (n + i) * 2, &low_half, 2);
  }
  int32_t codes[kMaxHeadDim];
  for (int r = 0; r < num_rows; ++r) {
    decode(from, from_rows, from_scales, r, 1, x, 0);
    for (int i = 0; i < n; ++i) codes[i] = int4_code(x[i], lows[i], inverses[i]);
    pack_nibbles(codes, n, rows + r * (n / 2));
  }
}

inline void convert(const KvPart& from, const uint8_t* from_rows, const uint8_t* from_scales,
                    int num_rows, const KvPart& to, uint8_t* rows, uint8_t* scales) {
  const int n = from.head_dim;
  if (to.format == KvFormat::kInt4 && to.is_key) {
    if (num_rows > 0) encode_int4_keys(from, from_rows, from_scales, num_rows, rows, scales);
    return;
  }
  float x[kMaxHeadDim];
  for (int r = 0; r < num_rows; ++r) {
    decode(from, from_rows, from_scales, r, 1, x, 0);
    if (to.format == KvFormat::kInt8) {
      encode_int8_row(x, n, rows + r * n, scales + r * 2);
    } else if (to.format == KvFormat::kInt4) {
      encode_int4_value_row(x, n, rows + r * (n / 2), scales + r * (n / 32) * 4);
    } else {
      store_plain(to, rows, r, 1, x, 0);
    }
  }
}

}  // namespace ikv::IKV_CODEC_NAMESPACE
