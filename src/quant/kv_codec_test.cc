#include "quant/kv_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "quant/kv_codec_kernels.h"
#include "quant/kv_codec_testing.h"

namespace ikv {
namespace {

constexpr KvFormat kAllFormats[] = {KvFormat::kF32, KvFormat::kF16, KvFormat::kBF16,
                                    KvFormat::kInt8, KvFormat::kInt4};

struct Page {
  explicit Page(KvFormats formats, int head_dim, int block_tokens)
      : layout(make_kv_page_layout(formats, head_dim, block_tokens).value()),
        bytes(layout.page_bytes, std::byte{0xA5}) {}
  KvPageLayout layout;
  std::vector<std::byte> bytes;
};

struct Rows {
  Rows(int num_rows, int head_dim, uint32_t seed) : dim(static_cast<size_t>(head_dim)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    k.resize(static_cast<size_t>(num_rows) * dim);
    v.resize(k.size());
    for (size_t i = 0; i < k.size(); ++i) {
      // Keys have a few channels that are far larger, as in real models.
      k[i] = normal(random) * (i % dim % 17 == 3 ? 12.0f : 1.0f);
      v[i] = normal(random);
    }
  }
  size_t dim;
  std::vector<float> k, v;
};

class OnTarget : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override { force_cpu_isa(GetParam()); }
  void TearDown() override { force_cpu_isa(std::nullopt); }
};

INSTANTIATE_TEST_SUITE_P(KvCodec, OnTarget, testing::ValuesIn(runnable_cpu_isas()),
                         [](const auto& name) { return std::string(cpu_isa_name(name.param)); });

TEST(KvPageLayout, PageBytesAreExactForEveryFormat) {
  EXPECT_EQ(make_kv_page_layout({KvFormat::kInt8, KvFormat::kInt8}, 64, 32).value().page_bytes,
            2u * (2048 + 64));
  EXPECT_EQ(make_kv_page_layout({KvFormat::kF16, KvFormat::kF16}, 64, 32).value().page_bytes,
            2u * 4096);
  EXPECT_EQ(make_kv_page_layout({KvFormat::kBF16, KvFormat::kF32}, 64, 32).value().page_bytes,
            4096u + 8192);
  EXPECT_EQ(make_kv_page_layout({KvFormat::kInt4, KvFormat::kInt4}, 64, 32).value().page_bytes,
            (1024u + 64 * 4) + (1024 + 32 * 2 * 4));
  EXPECT_EQ(make_kv_page_layout({KvFormat::kInt8, KvFormat::kInt4}, 96, 16).value().page_bytes,
            (96u * 16 + 64) + (48 * 16 + 16 * 3 * 4));
}

TEST(KvPageLayout, PartsDoNotOverlapAndAreAligned) {
  for (int dim = 32; dim <= 512; dim += 32) {
    for (int tokens = 16; tokens <= 128; tokens += 16) {
      for (KvFormat k : kAllFormats) {
        for (KvFormat v : kAllFormats) {
          const auto layout = make_kv_page_layout({k, v}, dim, tokens).value();
          const uint32_t offsets[] = {layout.k_offset, layout.k_scale_offset, layout.v_offset,
                                      layout.v_scale_offset, layout.page_bytes};
          for (int i = 0; i < 5; ++i) {
            EXPECT_EQ(offsets[i] % 64, 0u);
            if (i > 0) {
              EXPECT_GE(offsets[i], offsets[i - 1]);
            }
          }
          EXPECT_GE(layout.v_offset - layout.k_offset,
                    static_cast<size_t>(tokens) * kv_row_bytes(k, dim));
        }
      }
    }
  }
}

TEST(KvPageLayout, BadShapesAreNamed) {
  const auto message = [](int dim, int tokens) {
    return make_kv_page_layout({}, dim, tokens).error().message;
  };
  for (int dim : {-64, 0, 16, 48, 80, 544}) {
    EXPECT_NE(message(dim, 32).find(std::to_string(dim)), std::string::npos) << dim;
  }
  for (int tokens : {-16, 0, 8, 24, 33, 144}) {
    EXPECT_NE(message(64, tokens).find(std::to_string(tokens)), std::string::npos) << tokens;
  }
  EXPECT_FALSE(make_kv_page_layout({static_cast<KvFormat>(9), KvFormat::kF16}, 64, 32).ok());
}

// Largest error that rounding can make: `x` is the value, `range` max|row| for int8 and max-min of
// the channel or group for int4.
float error_bound(KvFormat format, float x, float range) {
  switch (format) {
    case KvFormat::kF32:
      return 0.0f;
    case KvFormat::kF16:
      return std::fabs(x) * 0x1p-11f + 0x1p-25f;
    case KvFormat::kBF16:
      return std::fabs(x) * 0x1p-8f;
    case KvFormat::kInt8:
      return range / 127.0f * 0.51f;
    case KvFormat::kInt4:  // and the half's rounding of minimum and step
      return range / 15.0f * 0.51f + 0x1p-10f * range + 0x1p-10f * std::fabs(x);
  }
  return 0.0f;
}

// Checks one half of a page; `by_channel` for int4 keys.
void expect_within_bounds(const KvPart& part, int num_tokens, const std::vector<float>& in,
                          const std::vector<float>& out) {
  const auto dim = static_cast<size_t>(part.head_dim);
  const auto tokens = static_cast<size_t>(num_tokens);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t d = 0; d < dim; ++d) {
      float low = in[t * dim + d], high = low, most = 0.0f;
      for (size_t i = 0; i < dim; ++i) most = std::max(most, std::fabs(in[t * dim + i]));
      if (part.is_key) {
        for (size_t s = 0; s < tokens; ++s) {
          low = std::min(low, in[s * dim + d]);
          high = std::max(high, in[s * dim + d]);
        }
      } else {
        for (size_t i = d / 32 * 32; i < d / 32 * 32 + 32; ++i) {
          low = std::min(low, in[t * dim + i]);
          high = std::max(high, in[t * dim + i]);
        }
      }
      const float range = part.format == KvFormat::kInt8 ? most : high - low;
      const float x = in[t * dim + d];
      ASSERT_NEAR(out[t * dim + d], x,
                  error_bound(part.format, std::max(std::fabs(x), std::fabs(low)), range))
          << kv_format_name(part.format) << " key=" << part.is_key << " t=" << t << " d=" << d;
    }
  }
}

TEST_P(OnTarget, EveryFormatStaysWithinItsErrorBound) {
  for (int dim : {32, 64, 96, 128, 160, 256, 512}) {
    for (int num_tokens : {1, 7, 16}) {
      Rows rows(num_tokens, dim, static_cast<uint32_t>(dim + num_tokens));
      Page source({KvFormat::kF32, KvFormat::kF32}, dim, 16);
      write_kv_rows(source.layout, source.bytes.data(), 0, num_tokens, rows.k.data(), rows.v.data(),
                    rows.dim);
      for (KvFormat format : kAllFormats) {
        Page page({format, format}, dim, 16);
        convert_kv_page(source.layout, source.bytes.data(), num_tokens, page.layout,
                        page.bytes.data());
        std::vector<float> k(rows.k.size()), v(rows.v.size());
        read_kv_rows(page.layout, page.bytes.data(), 0, num_tokens, k.data(), v.data(), rows.dim);
        expect_within_bounds({format, true, dim, 16}, num_tokens, rows.k, k);
        expect_within_bounds({format, false, dim, 16}, num_tokens, rows.v, v);
      }
    }
  }
}

TEST_P(OnTarget, RowsWrittenOneByOneEqualRowsWrittenAtOnce) {
  Rows rows(32, 64, 3);
  for (KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kBF16}) {
    Page whole({format, format}, 64, 32), single({format, format}, 64, 32);
    write_kv_rows(whole.layout, whole.bytes.data(), 0, 32, rows.k.data(), rows.v.data(), 64);
    for (int r = 0; r < 32; ++r) {
      write_kv_rows(single.layout, single.bytes.data(), r, 1, rows.k.data() + r * 64,
                    rows.v.data() + r * 64, 64);
    }
    EXPECT_EQ(whole.bytes, single.bytes);
  }
}

TEST_P(OnTarget, StrideAndFirstRowAreHonoured) {
  Rows rows(8, 64, 4);
  Page page({KvFormat::kF16, KvFormat::kBF16}, 64, 32);
  std::vector<float> wide(8 * 200, -1.0f);
  for (size_t r = 0; r < 8; ++r) std::copy_n(rows.k.data() + r * 64, 64, wide.data() + r * 200);
  write_kv_rows(page.layout, page.bytes.data(), 5, 8, wide.data(), wide.data(), 200);
  std::vector<float> out(8 * 70, -7.0f);
  read_kv_rows(page.layout, page.bytes.data(), 5, 8, out.data(), nullptr, 70);
  for (size_t r = 0; r < 8; ++r) {
    for (size_t d = 0; d < 64; ++d) {
      EXPECT_NEAR(out[r * 70 + d], rows.k[r * 64 + d], 0.02f);
    }
    EXPECT_EQ(out[r * 70 + 64], -7.0f);
  }
}

TEST(KvCodec, EveryTargetWritesTheSameBytesAsThePortableOne) {
  for (int dim : {32, 64, 96, 224}) {
    for (int num_tokens : {1, 13, 32}) {
      Rows rows(num_tokens, dim, 11);
      for (KvFormat from : {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8, KvFormat::kInt4}) {
        for (KvFormat to : kAllFormats) {
          std::vector<std::byte> first;
          for (CpuIsa isa : runnable_cpu_isas()) {
            force_cpu_isa(isa);
            Page plain({KvFormat::kF32, KvFormat::kF32}, dim, 32);
            write_kv_rows(plain.layout, plain.bytes.data(), 0, num_tokens, rows.k.data(),
                          rows.v.data(), rows.dim);
            Page source({from, from}, dim, 32), page({to, to}, dim, 32);
            convert_kv_page(plain.layout, plain.bytes.data(), num_tokens, source.layout,
                            source.bytes.data());
            convert_kv_page(source.layout, source.bytes.data(), num_tokens, page.layout,
                            page.bytes.data());
            if (isa == CpuIsa::kScalar) first = page.bytes;
            EXPECT_EQ(page.bytes, first)
                << cpu_isa_name(isa) << " " << kv_format_name(from) << " to " << kv_format_name(to);
          }
        }
      }
    }
  }
}

TEST_P(OnTarget, RowsThatAreNotThereAreZeroAndDoNotMatter) {
  Rows rows(5, 64, 6);
  Page source({KvFormat::kF16, KvFormat::kF16}, 64, 32);
  write_kv_rows(source.layout, source.bytes.data(), 0, 5, rows.k.data(), rows.v.data(), 64);
  Page other = source;
  for (size_t i = 5 * 128; i < 32 * 128; ++i) other.bytes[i] = std::byte{0x3C};
  for (KvFormat to : kAllFormats) {
    Page a({to, to}, 64, 32), b({to, to}, 64, 32);
    convert_kv_page(source.layout, source.bytes.data(), 5, a.layout, a.bytes.data());
    convert_kv_page(other.layout, other.bytes.data(), 5, b.layout, b.bytes.data());
    EXPECT_EQ(a.bytes, b.bytes) << kv_format_name(to);
    std::vector<float> v(32 * 64, 1.0f);
    read_kv_rows(a.layout, a.bytes.data(), 5, 27, nullptr, v.data(), 64);
    for (size_t i = 0; i < 27 * 64; ++i) ASSERT_EQ(v[i], 0.0f);
  }
}

TEST_P(OnTarget, SameFormatsAreCopiedBitForBit) {
  Rows rows(32, 128, 8);
  Page plain({KvFormat::kF32, KvFormat::kF32}, 128, 32);
  write_kv_rows(plain.layout, plain.bytes.data(), 0, 32, rows.k.data(), rows.v.data(), 128);
  Page int8({KvFormat::kInt8, KvFormat::kInt8}, 128, 32);
  convert_kv_page(plain.layout, plain.bytes.data(), 32, int8.layout, int8.bytes.data());
  Page mixed({KvFormat::kInt8, KvFormat::kInt4}, 128, 32);
  convert_kv_page(int8.layout, int8.bytes.data(), 32, mixed.layout, mixed.bytes.data());
  EXPECT_EQ(std::memcmp(mixed.bytes.data(), int8.bytes.data(), mixed.layout.v_offset), 0);
  Page again({KvFormat::kInt8, KvFormat::kInt4}, 128, 32);
  convert_kv_page(mixed.layout, mixed.bytes.data(), 32, again.layout, again.bytes.data());
  EXPECT_EQ(again.bytes, mixed.bytes);
}

TEST_P(OnTarget, ConstantRowsAndExtremeNumbersStayFinite) {
  const float values[] = {0.0f,  -0.0f,  1e-42f,   1e-31f, 3e-8f,
                          1e30f, -1e30f, 65504.0f, 7e4f,   std::numeric_limits<float>::max()};
  for (float value : values) {
    std::vector<float> x(16 * 64, value);
    for (size_t i = 0; i < x.size(); i += 3) x[i] = -value;
    Page plain({KvFormat::kF32, KvFormat::kF32}, 64, 16);
    write_kv_rows(plain.layout, plain.bytes.data(), 0, 16, x.data(), x.data(), 64);
    for (KvFormat to : kAllFormats) {
      Page page({to, to}, 64, 16);
      convert_kv_page(plain.layout, plain.bytes.data(), 16, page.layout, page.bytes.data());
      std::vector<float> k(x.size()), v(x.size());
      read_kv_rows(page.layout, page.bytes.data(), 0, 16, k.data(), v.data(), 64);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_TRUE(std::isfinite(k[i]) && std::isfinite(v[i])) << value;
        // Steps are halves: numbers beyond 127 times their range saturate, those below vanish.
        if (to == KvFormat::kInt8 && std::fabs(value) > 1e-2f && std::fabs(value) < 8e6f) {
          ASSERT_NEAR(k[i] / value, x[i] / value, 1e-3f);
        }
      }
    }
  }
}

TEST_P(OnTarget, HalvesRoundToNearestEvenLikeTheHardware) {
  // Every half is itself; halfway points go to the even neighbour.
  Page page({KvFormat::kF16, KvFormat::kF16}, 512, 128);
  std::vector<float> k(128 * 512), again(128 * 512);
  for (size_t i = 0; i < k.size(); ++i) {
    uint16_t half = static_cast<uint16_t>(i);
    if ((half & 0x7C00) == 0x7C00) half = 0;  // infinities and NaN
    std::memcpy(page.bytes.data() + i * 2, &half, 2);
  }
  read_kv_rows(page.layout, page.bytes.data(), 0, 128, k.data(), nullptr, 512);
  EXPECT_EQ(k[1], 0x1p-24f);
  EXPECT_EQ(k[0x3C00], 1.0f);
  EXPECT_EQ(k[0x7BFF], 65504.0f);
  Page copy = page;
  write_kv_rows(copy.layout, copy.bytes.data(), 0, 128, k.data(), k.data(), 512);
  EXPECT_EQ(std::memcmp(copy.bytes.data(), page.bytes.data(), copy.layout.k_scale_offset), 0);
  std::vector<float> x(512, 0.0f), out(512);
  x[0] = 1.0f + 0x1p-11f;
  x[1] = 1.0f + 0x1.8p-10f;
  x[2] = 0x1.8p-24f;
  x[3] = 0x0.8p-24f;
  x[4] = -65519.0f;
  write_kv_rows(page.layout, page.bytes.data(), 0, 1, x.data(), x.data(), 512);
  read_kv_rows(page.layout, page.bytes.data(), 0, 1, out.data(), nullptr, 512);
  EXPECT_EQ(out[0], 1.0f);
  EXPECT_EQ(out[1], 1.0f + 0x1p-9f);
  EXPECT_EQ(out[2], 0x1p-23f);
  EXPECT_EQ(out[3], 0.0f);
  EXPECT_EQ(out[4], -65504.0f);
}

}  // namespace
}  // namespace ikv
