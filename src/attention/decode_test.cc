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

constexpr uint32_t kNumCases = 60;
/// Values are of size 1: the kernels' own error, most of it that of 16 bits for queries and
/// weights.
constexpr float kTolerance = 4e-4f;

class Decode : public ::testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override { force_cpu_isa(GetParam()); }
  void TearDown() override { force_cpu_isa(std::nullopt); }

  void run(const AttentionSpec& spec, const DecodeJob& job) {
    attend_decode(spec, std::span(&job, 1), scratch_, threads_);
  }

  ThreadPool threads_{2};
  AttentionScratch scratch_;
};

INSTANTIATE_TEST_SUITE_P(Targets, Decode, ::testing::ValuesIn(runnable_cpu_isas()),
                         [](const auto& name) { return std::string(cpu_isa_name(name.param)); });

void expect_near(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance) << "at " << i;
}

TEST_P(Decode, EqualsTheReferenceOnRandomPageLists) {
  for (uint32_t seed = 0; seed < kNumCases; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c(seed);
    DecodeJob job = c.job();
    std::vector<float> mass(job.pages.size()), expected_mass(mass.size());
    job.page_mass = mass.data();
    run(c.spec, job);
    std::vector<float> expected(c.out.size());
    job.out = expected.data();
    job.page_mass = expected_mass.data();
    attend_decode_reference(c.spec, job);
    expect_near(c.out, expected, kTolerance);
    expect_near(mass, expected_mass, kTolerance * static_cast<float>(c.group()));
  }
}

TEST_P(Decode, EqualsTheReferenceOnRandomEntries) {
  for (uint32_t seed = 0; seed < kNumCases; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c(seed + 1000);
    const auto entries = c.entries(seed % 3 == 0 ? 0.02 : 0.3);
    DecodeJob job = c.job();
    job.all_entries = false;
    job.entries = entries;
    std::vector<float> mass(job.pages.size()), expected_mass(mass.size());
    job.page_mass = mass.data();
    run(c.spec, job);
    std::vector<float> expected(c.out.size());
    job.out = expected.data();
    job.page_mass = expected_mass.data();
    attend_decode_reference(c.spec, job);
    expect_near(c.out, expected, kTolerance);
    expect_near(mass, expected_mass, kTolerance * static_cast<float>(c.group()));
  }
}

TEST_P(Decode, AListOfAllEntriesIsBitIdenticalToAllEntries) {
  for (uint32_t seed = 0; seed < kNumCases; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c(seed);
    DecodeJob job = c.job();
    std::vector<float> mass(job.pages.size()), listed_mass(mass.size());
    job.page_mass = mass.data();
    run(c.spec, job);
    const auto entries = c.entries(1.1);
    std::vector<float> listed(c.out.size());
    job.all_entries = false;
    job.entries = entries;
    job.out = listed.data();
    job.page_mass = listed_mass.data();
    run(c.spec, job);
    EXPECT_EQ(c.out, listed);
    EXPECT_EQ(mass, listed_mass);
  }
}

TEST_P(Decode, ScoringThenAttendingIsBitIdenticalToAttending) {
  for (uint32_t seed = 0; seed < kNumCases; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c(seed);
    const auto candidates = c.entries(0.5);
    const size_t stride = candidates.size() + 3;
    const auto group = static_cast<size_t>(c.group());
    std::vector<float> logits(group * stride, 5.0f);
    DecodeJob job = c.job();
    score_entries(c.spec, job, candidates, logits.data(), stride);
    // Every other candidate is chosen.
    std::vector<PageEntry> chosen;
    std::vector<float> chosen_logits(group * stride);
    for (size_t i = 0; i < candidates.size(); i += 2) {
      for (size_t g = 0; g < group; ++g) {
        chosen_logits[g * stride + chosen.size()] = logits[g * stride + i];
      }
      chosen.push_back(candidates[i]);
    }
    std::vector<float> mass(job.pages.size()), whole_mass(mass.size());
    job.page_mass = mass.data();
    attend_scored(c.spec, job, chosen, chosen_logits.data(), stride);
    std::vector<float> whole(c.out.size());
    job.all_entries = false;
    job.entries = chosen;
    job.out = whole.data();
    job.page_mass = whole_mass.data();
    run(c.spec, job);
    EXPECT_EQ(c.out, whole);
    EXPECT_EQ(mass, whole_mass);
  }
}

TEST_P(Decode, ListsWithoutMaskedEntriesScoreAndAttendTheSame) {
  for (uint32_t seed = 0; seed < kNumCases; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c(seed);
    const auto group = static_cast<size_t>(c.group());
    const auto all = c.entries(0.9);
    std::vector<float> logits(group * all.size());
    DecodeJob job = c.job();
    score_entries(c.spec, job, all, logits.data(), all.size());
    std::vector<PageEntry> readable;
    std::vector<float> expected;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!std::isinf(logits[i])) readable.push_back(all[i]);
    }
    for (size_t i = 0; i < logits.size(); ++i) {
      if (!std::isinf(logits[i])) expected.push_back(logits[i]);
    }
    // Room after each row must stay as it is.
    const size_t stride = readable.size() + 5;
    std::vector<float> again(group * stride, 77.0f);
    score_entries(c.spec, job, readable, again.data(), stride);
    for (size_t g = 0; g < group; ++g) {
      for (size_t i = 0; i < readable.size(); ++i) {
        ASSERT_EQ(again[g * stride + i], expected[g * readable.size() + i]);
      }
      for (size_t i = readable.size(); i < stride; ++i) ASSERT_EQ(again[g * stride + i], 77.0f);
    }
    attend_scored(c.spec, job, readable, again.data(), stride);
    const std::vector<float> scored = c.out;
    job.all_entries = false;
    job.entries = all;
    run(c.spec, job);
    EXPECT_EQ(c.out, scored);
  }
}

TEST_P(Decode, AFullRunOfMixedPiecesWritesNothingBeyondItself) {
  int tried = 0;
  for (uint32_t seed = 0; seed < kNumCases; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c(seed);
    const auto group = static_cast<size_t>(c.group());
    const auto all = c.entries(0.9);
    std::vector<float> logits(group * all.size());
    const DecodeJob job = c.job();
    score_entries(c.spec, job, all, logits.data(), all.size());
    std::vector<size_t> readable;  // indices into `all`
    for (size_t i = 0; i < all.size(); ++i) {
      if (!std::isinf(logits[i])) readable.push_back(i);
    }
    if (readable.size() < 256) continue;
    readable.erase(readable.begin(), readable.end() - 256);
    std::vector<PageEntry> run_entries;
    for (const size_t i : readable) run_entries.push_back(all[i]);
    std::vector<float> again(group * 256 + 64, 77.0f);
    score_entries(c.spec, job, run_entries, again.data(), 256);
    for (size_t g = 0; g < group; ++g) {
      for (size_t i = 0; i < 256; ++i) {
        ASSERT_EQ(again[g * 256 + i], logits[g * all.size() + readable[i]]);
      }
    }
    for (size_t i = group * 256; i < again.size(); ++i) ASSERT_EQ(again[i], 77.0f);
    ++tried;
  }
  EXPECT_GT(tried, 0);
}

TEST_P(Decode, ScoresAreTheLogitsAndMaskedOnesAreMinusInfinity) {
  for (uint32_t seed = 0; seed < kNumCases; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c(seed);
    const auto entries = c.entries(1.1);
    std::vector<float> logits(static_cast<size_t>(c.group()) * entries.size());
    score_entries(c.spec, c.job(), entries, logits.data(), entries.size());
    for (size_t i = 0; i < entries.size(); ++i) {
      // The reference over this entry alone says whether it can be read.
      DecodeJob one = c.job();
      std::vector<float> mass(one.pages.size());
      one.all_entries = false;
      one.entries = std::span(&entries[i], 1);
      one.page_mass = mass.data();
      if (i % 7 == 0) {
        attend_decode_reference(c.spec, one);
        const bool readable = std::accumulate(mass.begin(), mass.end(), 0.0f) > 0.5f;
        EXPECT_EQ(std::isinf(logits[i]), !readable) << i;
      }
      EXPECT_FALSE(std::isnan(logits[i]));
    }
  }
}

TEST_P(Decode, NeitherThreadsNorOtherJobsChangeAResult) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c(seed);
    run(c.spec, c.job());
    const std::vector<float> alone = c.out;
    std::vector<std::vector<float>> outs(9, std::vector<float>(c.out.size()));
    std::vector<DecodeJob> jobs(9, c.job());
    const auto queries = c.cache.normal(c.q.size());
    const auto entries = c.entries(0.1);
    for (size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].out = outs[i].data();
      if (i % 3 == 1) jobs[i].q = queries.data();
      if (i % 3 == 2) jobs[i].all_entries = false, jobs[i].entries = entries;
    }
    ThreadPool one(1), three(3);
    for (ThreadPool* pool : {&one, &three}) {
      attend_decode(c.spec, jobs, scratch_, *pool);
      for (size_t i = 0; i < jobs.size(); i += 3) EXPECT_EQ(outs[i], alone);
    }
  }
}

TEST_P(Decode, ScratchStaysWithinWhatIsChargedForIt) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    RandomCase c(seed);
    for (KvPageView& page : c.cache.pages()) page.position_shift = 0;
    AttentionScratch scratch;
    EXPECT_LT(scratch.size_bytes(), 1024u);
    std::vector<DecodeJob> jobs(static_cast<size_t>(3 * c.spec.num_kv_heads), c.job());
    std::vector<float> mass(jobs[0].pages.size());
    const auto entries = c.entries(1.1);
    for (DecodeJob& job : jobs) job.page_mass = mass.data();
    attend_decode(c.spec, std::span(jobs).first(1), scratch, threads_);
    for (DecodeJob& job : jobs) job.all_entries = false, job.entries = entries;
    ThreadPool one(1);  // the jobs share an output
    attend_decode(c.spec, jobs, scratch, one);
    PrefillJob prefill;
    const auto width = static_cast<size_t>(c.group() * c.spec.head_dim);
    std::vector<float> q(width * static_cast<size_t>(c.block_tokens)), out(q.size());
    std::vector<float> prefill_mass(c.cache.pages().size() + 1);
    prefill.q = q.data();
    prefill.out = out.data();
    prefill.q_stride = prefill.out_stride = width;
    prefill.num_rows = c.block_tokens;
    prefill.first_position = c.cache.next_position();
    prefill.pages = c.cache.pages();
    prefill.own = c.cache.pages().front();
    prefill.page_mass = prefill_mass.data();
    attend_prefill(c.spec, std::span(&prefill, 1), scratch, threads_);
    EXPECT_GT(scratch.size_bytes(), 1024u);
    const int tokens = static_cast<int>(c.cache.pages().size()) * c.block_tokens;
    EXPECT_LE(scratch.size_bytes(),
              AttentionScratch::bytes_for(c.spec, 3, tokens, c.block_tokens, 2));
  }
}

TEST_P(Decode, NothingToReadGivesZeros) {
  RandomCase c(5);
  std::vector<float> mass(c.cache.pages().size(), 3.0f);
  DecodeJob job = c.job();
  job.all_entries = false;
  job.page_mass = mass.data();
  run(c.spec, job);
  EXPECT_EQ(c.out, std::vector<float>(c.out.size(), 0.0f));
  EXPECT_EQ(mass, std::vector<float>(mass.size(), 0.0f));
  job = c.job();
  job.pages = {};
  c.out.assign(c.out.size(), 1.0f);
  run(c.spec, job);
  EXPECT_EQ(c.out, std::vector<float>(c.out.size(), 0.0f));
  for (KvPageView& page : c.cache.pages()) page.data = nullptr;
  const auto entries = c.entries(1.1);
  std::vector<float> logits(entries.size() * static_cast<size_t>(c.group()), 0.0f);
  job = c.job();
  score_entries(c.spec, job, entries, logits.data(), entries.size());
  for (float x : logits) EXPECT_EQ(x, -INFINITY);
  c.out.assign(c.out.size(), 1.0f);
  attend_scored(c.spec, job, entries, logits.data(), entries.size());
  EXPECT_EQ(c.out, std::vector<float>(c.out.size(), 0.0f));
  attend_decode(c.spec, {}, scratch_, threads_);
}

TEST_P(Decode, PageMassAddsUpToTheGroup) {
  RandomCase c(3);
  std::vector<float> mass(c.cache.pages().size());
  DecodeJob job = c.job();
  job.page_mass = mass.data();
  run(c.spec, job);
  EXPECT_NEAR(std::accumulate(mass.begin(), mass.end(), 0.0f), static_cast<float>(c.group()),
              1e-4f);
}

TEST_P(Decode, AShiftedPageScoresAsKeysRotatedForTheirNewPlace) {
  // Keys of two pages are the same up to rotation; a shift on one makes all logits equal.
  AttentionSpec spec{2, 1, 64, 0.125f, 0, 0.0f, nullptr};
  RopeSpec rope;
  rope.num_dims = 64;
  rope.magnitude = 0.7f;
  for (int i = 0; i < 32; ++i) {
    rope.inverse_freq.push_back(std::pow(10000.0f, -static_cast<float>(i) / 32.0f));
  }
  spec.rope = &rope;
  RandomCache cache(64, 16, 1);
  const auto q = cache.normal(128), raw = cache.normal(64);
  const KvPageLayout layout = make_kv_page_layout({KvFormat::kF32, KvFormat::kF32}, 64, 16).value();
  std::vector<float> logits[2];
  for (int shift : {0, 37}) {
    std::vector<std::byte> bytes(layout.page_bytes);
    for (int row = 0; row < 16; ++row) {
      // Stands at 100 + row + 37 in both cases; rotated for 100 + row when shifted.
      const double position = 100 + row + (shift == 0 ? 37 : 0);
      std::vector<float> k(64);
      for (size_t i = 0; i < 32; ++i) {
        const double angle = position * static_cast<double>(rope.inverse_freq[i]);
        const double a = static_cast<double>(raw[2 * i]), b = static_cast<double>(raw[2 * i + 1]);
        k[2 * i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
        k[2 * i + 1] = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
      }
      write_kv_rows(layout, bytes.data(), row, 1, k.data(), k.data(), 64);
    }
    const KvPageView page{bytes.data(), &layout, shift == 0 ? 137 : 100, 16, shift};
    std::vector<PageEntry> entries(16);
    std::iota(entries.begin(), entries.end(), 0u);
    DecodeJob job;
    job.q = q.data();
    job.position = 500;
    job.pages = std::span(&page, 1);
    auto& l = logits[shift == 0 ? 0 : 1];
    l.resize(32);
    score_entries(spec, job, entries, l.data(), 16);
  }
  expect_near(logits[1], logits[0], 2e-5f);
}

}  // namespace
}  // namespace ikv
