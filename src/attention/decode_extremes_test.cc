// Decode attention at the limits of its numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "attention/paged_attention.h"
#include "attention/paged_attention_reference.h"
#include "attention/testing/random_case.h"

namespace ikv {
namespace {

using testing::RandomCache;
using testing::RandomCase;

class DecodeExtremes : public ::testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override { force_cpu_isa(GetParam()); }
  void TearDown() override { force_cpu_isa(std::nullopt); }

  void run(const AttentionSpec& spec, const DecodeJob& job) {
    attend_decode(spec, std::span(&job, 1), scratch_, threads_);
  }

  ThreadPool threads_{2};
  AttentionScratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(Targets, DecodeExtremes, ::testing::ValuesIn(runnable_cpu_isas()),
                         [](const auto& name) { return std::string(cpu_isa_name(name.param)); });

TEST_P(DecodeExtremes, HugeAndTinyNumbersNeverGiveNaN) {
  const float sizes[] = {0.0f, 1e-42f, 1e-30f, 1e-10f, 1e10f, 1e25f, 3e30f};
  for (float key_size : sizes) {
    for (float query_size : sizes) {
      for (int format = 0; format < 5; ++format) {
        RandomCache cache(64, 32, 7);
        const auto f = static_cast<KvFormat>(format);
        for (int p = 0; p < 3; ++p) cache.append({f, f}, 32, key_size);
        AttentionSpec spec{3, 1, 64, 0.125f, 0, 0.0f, nullptr};
        const auto q = cache.normal(3 * 64, query_size);
        std::vector<float> out(q.size());
        DecodeJob job;
        job.q = q.data();
        job.out = out.data();
        job.position = 95;
        job.pages = cache.pages();
        for (float cap : {0.0f, 30.0f}) {
          spec.logit_softcap = cap;
          run(spec, job);
          for (float x : out) {
            ASSERT_TRUE(std::isfinite(x)) << key_size << " " << query_size << " " << format;
            ASSERT_LT(std::fabs(x), 6.0f);
          }
        }
      }
    }
  }
}

TEST_P(DecodeExtremes, TheLargestIntegerSumsDoNotOverflow) {
  // All codes and all query integers at their maximum, of either sign, at the largest head size.
  const KvPageLayout plain =
      make_kv_page_layout({KvFormat::kF32, KvFormat::kF32}, 512, 128).value();
  for (float sign : {1.0f, -1.0f}) {
    for (KvFormat format : {KvFormat::kInt8, KvFormat::kInt4}) {
      const KvPageLayout layout = make_kv_page_layout({format, format}, 512, 128).value();
      std::vector<float> k(128 * 512, sign), v(128 * 512, 1.0f), q(512, 2.0f);
      // Int4 needs a range: the last token is at the other end of it.
      if (format == KvFormat::kInt4) std::fill(k.end() - 512, k.end(), 0.0f);
      std::vector<std::byte> source(plain.page_bytes), page(layout.page_bytes);
      write_kv_rows(plain, source.data(), 0, 128, k.data(), v.data(), 512);
      convert_kv_page(plain, source.data(), 128, layout, page.data());
      const std::vector<KvPageView> pages = {{page.data(), &layout, 0, 128, 0},
                                             {page.data(), &layout, 128, 128, 0}};
      const AttentionSpec spec{1, 1, 512, 0.01f, 0, 0.0f, nullptr};
      std::vector<float> out(512), logits(256);
      std::vector<PageEntry> entries(256);
      std::iota(entries.begin(), entries.end(), 0u);
      DecodeJob job;
      job.q = q.data();
      job.out = out.data();
      job.position = 300;
      job.pages = pages;
      score_entries(spec, job, entries, logits.data(), 256);
      EXPECT_NEAR(logits[0], sign * 10.24f, 0.01f);
      EXPECT_NEAR(logits[254], sign * 10.24f, 0.01f);
      run(spec, job);
      for (float x : out) ASSERT_NEAR(x, 1.0f, 1e-3f);
    }
  }
}

}  // namespace
}  // namespace ikv
