#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "attention/paged_attention.h"
#include "attention/paged_attention_reference.h"
#include "attention/testing/random_case.h"

namespace ikv {
namespace {

using testing::RandomCase;

constexpr uint32_t kNumCases = 40;
constexpr float kTolerance = 4e-4f;

/// A random case with an own block of plain format and queries of its rows.
struct PrefillCase {
  explicit PrefillCase(uint32_t seed) : c(seed) {
    // A sealed list ends with a whole block.
    if (c.cache.pages().back().num_tokens < c.block_tokens) c.cache.pages().pop_back();
    own_begin = c.cache.pages().empty() ? 0 : c.cache.pages().back().begin + c.block_tokens;
    num_tokens = 1 + static_cast<int>(seed * 7 % static_cast<uint32_t>(c.block_tokens));
    own = std::make_unique<testing::RandomCache>(c.spec.head_dim, c.block_tokens, seed + 5);
    const auto format = static_cast<KvFormat>(seed % 3);
    own->append({format, format}, num_tokens);
    q_stride = static_cast<size_t>(c.spec.num_heads * c.spec.head_dim) + 16;
    q = own->normal(q_stride * static_cast<size_t>(num_tokens));
    out.assign(q.size(), -9.0f);
  }

  /// Rows first .. last-1 of the block.
  PrefillJob job(int first, int last) {
    PrefillJob job;
    job.q = q.data() + static_cast<size_t>(first) * q_stride;
    job.q_stride = q_stride;
    job.out = out.data() + static_cast<size_t>(first) * q_stride;
    job.out_stride = q_stride;
    job.num_rows = last - first;
    job.first_position = own_begin + first;
    job.pages = c.cache.pages();
    job.own = own->pages()[0];
    job.own.begin = own_begin;
    job.own.num_tokens = last;
    return job;
  }

  RandomCase c;
  std::unique_ptr<testing::RandomCache> own;
  LogicalPos own_begin = 0;
  int num_tokens = 0;
  size_t q_stride = 0;
  std::vector<float> q, out;
};

class Prefill : public ::testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override { force_cpu_isa(GetParam()); }
  void TearDown() override { force_cpu_isa(std::nullopt); }

  void run(const AttentionSpec& spec, const PrefillJob& job) {
    attend_prefill(spec, std::span(&job, 1), scratch_, threads_);
  }

  ThreadPool threads_{2};
  AttentionScratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(Targets, Prefill, ::testing::ValuesIn(runnable_cpu_isas()),
                         [](const auto& name) { return std::string(cpu_isa_name(name.param)); });

TEST_P(Prefill, EqualsTheReferenceOnRandomPageLists) {
  for (uint32_t seed = 0; seed < kNumCases; ++seed) {
    SCOPED_TRACE(seed);
    PrefillCase p(seed);
    const int first = static_cast<int>(seed % 3) * p.num_tokens / 4;
    PrefillJob job = p.job(first, p.num_tokens);
    std::vector<float> mass(job.pages.size() + 1), expected_mass(mass.size());
    if (seed % 2 == 0) job.page_mass = mass.data();
    job.mass_first_row = job.num_rows / 2;
    run(p.c.spec, job);
    const std::vector<float> out = p.out;
    p.out.assign(out.size(), -9.0f);
    if (seed % 2 == 0) job.page_mass = expected_mass.data();
    attend_prefill_reference(p.c.spec, job);
    for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], p.out[i], kTolerance) << i;
    for (size_t i = 0; i < mass.size(); ++i) {
      ASSERT_NEAR(mass[i], expected_mass[i],
                  kTolerance * static_cast<float>(p.c.group() * job.num_rows));
    }
  }
}

TEST_P(Prefill, ARowDoesNotDependOnTheChunkItComesIn) {
  for (uint32_t seed = 0; seed < kNumCases; ++seed) {
    SCOPED_TRACE(seed);
    PrefillCase p(seed);
    run(p.c.spec, p.job(0, p.num_tokens));
    const std::vector<float> whole = p.out;
    for (int step : {1, 3, 11}) {
      if (step == 1 && p.num_tokens > 20) continue;
      p.out.assign(whole.size(), -9.0f);
      for (int first = 0; first < p.num_tokens; first += step) {
        run(p.c.spec, p.job(first, std::min(first + step, p.num_tokens)));
      }
      EXPECT_EQ(p.out, whole);
    }
  }
}

TEST_P(Prefill, NeitherThreadsNorOtherJobsNorMassChangeAResult) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    SCOPED_TRACE(seed);
    PrefillCase p(seed);
    run(p.c.spec, p.job(0, p.num_tokens));
    const std::vector<float> alone = p.out;
    std::vector<std::vector<float>> outs(5, std::vector<float>(alone.size(), -9.0f));
    std::vector<PrefillJob> jobs(5, p.job(0, p.num_tokens));
    std::vector<float> mass(jobs[0].pages.size() + 1);
    for (size_t i = 0; i < jobs.size(); ++i) jobs[i].out = outs[i].data();
    jobs[2].page_mass = mass.data();
    jobs[3].num_rows = 1;
    ThreadPool one(1), three(3);
    for (ThreadPool* pool : {&one, &three}) {
      attend_prefill(p.c.spec, jobs, scratch_, *pool);
      for (size_t i : {0, 1, 2, 4}) EXPECT_EQ(outs[i], alone);
    }
  }
}

TEST_P(Prefill, EqualKeysGiveTheMeanOfTheValues) {
  // All weights are at their largest, so are the sums of 16-bit weights over a segment.
  const KvPageLayout plain = make_kv_page_layout({KvFormat::kF32, KvFormat::kF32}, 64, 128).value();
  const KvPageLayout layout =
      make_kv_page_layout({KvFormat::kInt8, KvFormat::kInt8}, 64, 128).value();
  for (float sign : {1.0f, -1.0f}) {
    const std::vector<float> k(128 * 64, sign), v(128 * 64, sign), q(64, 1.0f);
    std::vector<std::byte> source(plain.page_bytes), page(layout.page_bytes);
    write_kv_rows(plain, source.data(), 0, 128, k.data(), v.data(), 64);
    convert_kv_page(plain, source.data(), 128, layout, page.data());
    const std::vector<KvPageView> pages = {{page.data(), &layout, 0, 128, 0},
                                           {page.data(), &layout, 128, 128, 0}};
    const AttentionSpec spec{1, 1, 64, 0.125f, 0, 0.0f, nullptr};
    std::vector<float> out(64);
    PrefillJob job;
    job.q = q.data();
    job.q_stride = job.out_stride = 64;
    job.out = out.data();
    job.num_rows = 1;
    job.first_position = 256;
    job.pages = pages;
    job.own = {source.data(), &plain, 256, 1, 0};
    run(spec, job);
    for (float x : out) ASSERT_NEAR(x, sign, 1e-3f);
  }
}

TEST_P(Prefill, HugeAndTinyNumbersNeverGiveNaN) {
  for (float key_size : {0.0f, 1e-42f, 1e-10f, 1e10f, 3e30f}) {
    for (float query_size : {0.0f, 1e-30f, 1e25f}) {
      for (int format = 0; format < 5; ++format) {
        testing::RandomCache cache(64, 32, 7), own(64, 32, 8);
        const auto f = static_cast<KvFormat>(format);
        for (int i = 0; i < 5; ++i) cache.append({f, f}, 32, key_size);
        own.append({KvFormat::kF32, KvFormat::kF32}, 32, key_size);
        const AttentionSpec spec{3, 1, 64, 0.125f, 0, 0.0f, nullptr};
        const auto q = cache.normal(32 * 192, query_size);
        std::vector<float> out(q.size());
        PrefillJob job;
        job.q = q.data();
        job.out = out.data();
        job.q_stride = job.out_stride = 192;
        job.num_rows = 32;
        job.first_position = 160;
        job.pages = cache.pages();
        job.own = own.pages()[0];
        job.own.begin = 160;
        run(spec, job);
        for (float x : out) {
          ASSERT_TRUE(std::isfinite(x)) << key_size << " " << query_size << " " << format;
          ASSERT_LT(std::fabs(x), 6.0f);
        }
      }
    }
  }
}

}  // namespace
}  // namespace ikv
