#include "kv/key_codes.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "kv/key_codebook_file.h"
#include "kv/key_codebook_fit.h"

namespace ikv {
namespace {

/// Keys with channels of unlike mean and spread, in clusters, as real keys are.
std::vector<float> random_keys(int n, int head_dim, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> shape(static_cast<size_t>(head_dim) * 9);
  std::mt19937 fixed(7);
  for (float& x : shape) x = normal(fixed);
  std::vector<float> keys;
  for (int i = 0; i < n; ++i) {
    const size_t cluster = random() % 8;
    for (int c = 0; c < head_dim; ++c) {
      keys.push_back(3 * shape[c] + shape[(cluster + 1) * head_dim + c] + 0.4f * normal(random));
    }
  }
  return keys;
}

/// Channels in another order, at scales from 0.25 to 4.
KeyTransform shuffled(int head_dim) {
  KeyTransform transform = identity_transform(head_dim);
  std::mt19937 random(77);
  std::shuffle(transform.channel.begin(), transform.channel.end(), random);
  for (float& scale : transform.scale) scale = std::exp2(static_cast<float>(random() % 9) / 2 - 2);
  return transform;
}

/// Product codes are fitted with a transform, sign codes without.
KeyCodebooks fitted(KeyCodeKind kind, int head_dim) {
  KeySampler sampler({{1, head_dim}}, 2000, 1);
  const auto samples = random_keys(2000, head_dim, 1);
  for (int i = 0; i < 2000; ++i) sampler.add(0, 0, samples.data() + i * head_dim);
  std::vector<KeyTransform> transforms;
  if (kind == KeyCodeKind::kProduct) transforms.push_back(shuffled(head_dim));
  ThreadPool one(1);
  auto books = fit_codebooks(kind, sampler, 5, one, nullptr, transforms);
  EXPECT_TRUE(books.ok());
  return std::move(books).value();
}

/// Runs `body` once for each instruction set that this machine has.
template <typename Body>
void for_each_target(Body&& body) {
  const int64_t all = hwy::SupportedTargets();
  for (int64_t left = all; left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    SCOPED_TRACE(hwy::TargetName(left & -left));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

class KeyCodesTest : public ::testing::TestWithParam<int> {};

TEST_P(KeyCodesTest, SimdEncodingEqualsReferenceOnEveryTarget) {
  const int head_dim = GetParam();
  for (const KeyCodeKind kind : {KeyCodeKind::kProduct, KeyCodeKind::kSign}) {
    const KeyCodebooks books = fitted(kind, head_dim);
    const auto keys = random_keys(53, head_dim, 2);
    const size_t bytes = key_code_bytes_per_token(head_dim) * 64;
    std::vector<std::byte> expected(bytes), actual(bytes);
    encode_keys_reference(books.head(0, 0), head_dim, keys.data(), head_dim, 53, 3,
                          expected.data());
    for_each_target([&] {
      std::fill(actual.begin(), actual.end(), std::byte{0});
      // One at a time and in runs must be the same: a row's bytes are its own.
      encode_keys(books.head(0, 0), head_dim, keys.data(), head_dim, 20, 3, actual.data());
      for (int t = 20; t < 53; ++t) {
        encode_keys(books.head(0, 0), head_dim, keys.data() + t * head_dim, head_dim, 1, 3 + t,
                    actual.data());
      }
      EXPECT_EQ(expected, actual);
    });
  }
}

TEST_P(KeyCodesTest, SimdScanEqualsReferenceOnEveryTargetForAllLengthsAndUnalignedCodes) {
  const int head_dim = GetParam();
  const KeyCodebooks books = fitted(KeyCodeKind::kProduct, head_dim);
  const auto keys = random_keys(64, head_dim, 3);
  std::vector<std::byte> storage(key_code_bytes_per_token(head_dim) * 64 + 1);
  std::byte* codes = storage.data() + 1;
  encode_keys(books.head(0, 0), head_dim, keys.data(), head_dim, 64, 0, codes);
  const auto queries = random_keys(3, head_dim, 4);
  KeyScanTables tables;
  build_scan_tables(books.head(0, 0), head_dim, queries.data(), head_dim, 3, tables);
  for_each_target([&] {
    for (int n = 0; n <= 64; ++n) {
      std::vector<float> expected(3 * 70, -1.0f), actual(3 * 70, -1.0f);
      scan_key_codes_reference(tables, codes, n, expected.data(), 70);
      scan_key_codes(tables, codes, n, actual.data(), 70);
      ASSERT_EQ(expected, actual) << n << " tokens";
    }
  });
}

TEST_P(KeyCodesTest, ScoresEqualDotProductsWithTheDecodedKeyWithinTheTablesRounding) {
  const int head_dim = GetParam();
  for (const KeyCodeKind kind : {KeyCodeKind::kProduct, KeyCodeKind::kSign}) {
    const KeyCodebooks books = fitted(kind, head_dim);
    const auto keys = random_keys(32, head_dim, 5), queries = random_keys(2, head_dim, 6);
    std::vector<std::byte> codes(key_code_bytes_per_token(head_dim) * 32);
    encode_keys(books.head(0, 0), head_dim, keys.data(), head_dim, 32, 0, codes.data());
    KeyScanTables tables;
    build_scan_tables(books.head(0, 0), head_dim, queries.data(), head_dim, 2, tables);
    std::vector<float> scores(64), key(head_dim);
    scan_key_codes(tables, codes.data(), 32, scores.data(), 32);
    for (int q = 0; q < 2; ++q) {
      const float bound = tables.scale[q] * 0.5f * static_cast<float>(head_dim / 4) + 1e-3f;
      for (int t = 0; t < 32; ++t) {
        decode_key(books.head(0, 0), head_dim, codes.data(), t, key.data());
        const float dot =
            std::inner_product(key.begin(), key.end(), queries.begin() + q * head_dim, 0.0f);
        EXPECT_NEAR(scores[q * 32 + t], dot, bound);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, KeyCodesTest, ::testing::Values(32, 64, 96, 128, 256, 512));

TEST(KeyCodes, TopKeysByProductCodesAreMostlyTheTrueOnesAndBetterThanSigns) {
  constexpr int kDim = 64, kTokens = 2048, kTop = 256;
  const auto keys = random_keys(kTokens, kDim, 11), queries = random_keys(8, kDim, 12);
  double recall[2] = {};
  for (const KeyCodeKind kind : {KeyCodeKind::kProduct, KeyCodeKind::kSign}) {
    const KeyCodebooks books = fitted(kind, kDim);
    std::vector<std::byte> codes(key_code_bytes_per_token(kDim) * kTokens);
    encode_keys(books.head(0, 0), kDim, keys.data(), kDim, kTokens, 0, codes.data());
    KeyScanTables tables;
    build_scan_tables(books.head(0, 0), kDim, queries.data(), kDim, 8, tables);
    std::vector<float> scores(8 * kTokens);
    scan_key_codes(tables, codes.data(), kTokens, scores.data(), kTokens);
    for (int q = 0; q < 8; ++q) {
      std::vector<float> exact(kTokens);
      for (int t = 0; t < kTokens; ++t) {
        exact[t] = std::inner_product(keys.begin() + t * kDim, keys.begin() + (t + 1) * kDim,
                                      queries.begin() + q * kDim, 0.0f);
      }
      const auto threshold = [&](std::vector<float> v) {
        std::nth_element(v.begin(), v.begin() + kTop, v.end(), std::greater<>());
        return v[kTop];
      };
      const float* row = scores.data() + q * kTokens;
      const float exact_cut = threshold(exact);
      const float code_cut = threshold(std::vector<float>(row, row + kTokens));
      for (int t = 0; t < kTokens; ++t) {
        recall[static_cast<int>(kind)] += exact[t] > exact_cut && row[t] >= code_cut ? 1 : 0;
      }
    }
    recall[static_cast<int>(kind)] /= 8.0 * kTop;
  }
  std::printf("recall of the top %d of %d: product %.3f, sign %.3f\n", kTop, kTokens, recall[0],
              recall[1]);
  EXPECT_GT(recall[0], 0.7);
  EXPECT_GT(recall[1], 0.5);
}

TEST(KeyCodes, PagesScanEqualsOnePageAtATimeAndMaxTakesTheGroupsBest) {
  const int head_dim = 64;
  const KeyCodebooks books = fitted(KeyCodeKind::kProduct, head_dim);
  const auto keys = random_keys(160, head_dim, 21), queries = random_keys(3, head_dim, 22);
  const size_t page_bytes = key_code_bytes_per_token(head_dim) * 16;
  std::vector<std::vector<std::byte>> pages(10, std::vector<std::byte>(page_bytes));
  std::vector<const std::byte*> list;
  for (int p = 0; p < 10; ++p) {
    encode_keys(books.head(0, 0), head_dim, keys.data() + p * 16 * head_dim, head_dim, 16, 0,
                pages[p].data());
    list.push_back(pages[p].data());
  }
  KeyScanTables tables;
  build_scan_tables(books.head(0, 0), head_dim, queries.data(), head_dim, 3, tables);
  std::vector<float> all(3 * 200, -1e9f), best(155);
  scan_key_code_pages(tables, list, 16, 155, all.data(), 200);
  max_over_queries(all.data(), 200, 3, 155, best.data());
  for (int p = 0; p < 10; ++p) {
    std::vector<float> one(48);
    scan_key_codes_reference(tables, list[p], 16, one.data(), 16);
    for (int t = 0; t < 16 && p * 16 + t < 155; ++t) {
      for (int q = 0; q < 3; ++q) EXPECT_EQ(all[q * 200 + p * 16 + t], one[q * 16 + t]);
      EXPECT_EQ(best[p * 16 + t], std::max({one[t], one[16 + t], one[32 + t]}));
    }
  }
  EXPECT_EQ(all[155], -1e9f);
}

TEST(KeyCodes, ZeroAndNonFiniteQueriesGiveScoresWithoutUndefinedBehaviour) {
  const KeyCodebooks books = fitted(KeyCodeKind::kProduct, 64);
  std::vector<float> queries(128, 0.0f);
  queries[64] = INFINITY;
  KeyScanTables tables;
  build_scan_tables(books.head(0, 0), 64, queries.data(), 64, 2, tables);
  std::vector<std::byte> codes(8 * 16);
  float scores[32];
  scan_key_codes(tables, codes.data(), 16, scores, 16);
  EXPECT_EQ(scores[0], 0.0f);
}

TEST(KeyCodebookFit, SameSeedGivesTheSameBytesAndDegenerateSamplesWork) {
  auto samples = random_keys(500, 32, 9);
  const auto a = fit_head_codebook(KeyCodeKind::kProduct, samples.data(), 500, 32, 32, 1);
  EXPECT_EQ(a, fit_head_codebook(KeyCodeKind::kProduct, samples.data(), 500, 32, 32, 1));
  EXPECT_NE(a, fit_head_codebook(KeyCodeKind::kProduct, samples.data(), 500, 32, 32, 2));
  const std::vector<float> same(320, 2.5f);
  for (const float x : fit_head_codebook(KeyCodeKind::kProduct, same.data(), 10, 32, 32, 1)) {
    EXPECT_EQ(x, 2.5f);
  }
  samples[3] = NAN;
  for (const float x : fit_head_codebook(KeyCodeKind::kProduct, samples.data(), 500, 32, 32, 1)) {
    EXPECT_TRUE(std::isfinite(x));
  }
  EXPECT_EQ(fit_head_codebook(KeyCodeKind::kSign, nullptr, 0, 32, 32, 1),
            std::vector<float>(32 * 16, 0.0f));
}

TEST(KeyCodebookFit, AllHeadsTogetherEqualEachAloneForAnyNumberOfThreads) {
  const std::vector<KvLayerShape> layers = {{2, 32}, {1, 64}};
  KeySampler sampler(layers, 100, 3);
  const auto narrow = random_keys(400, 32, 31), wide = random_keys(400, 64, 32);
  for (int i = 0; i < 200; ++i) {
    sampler.add(0, 0, narrow.data() + i * 32);
    sampler.add(0, 1, narrow.data() + (i + 200) * 32);
    sampler.add(1, 0, wide.data() + i * 64);
  }
  EXPECT_EQ(sampler.num_samples(0, 1), 100u);
  ThreadPool one(1), two(2);
  size_t last = 0;
  auto a = fit_codebooks(KeyCodeKind::kProduct, sampler, 9, one);
  auto b = fit_codebooks(KeyCodeKind::kProduct, sampler, 9, two,
                         [&](size_t done, size_t all) { last = done * 10 + all; });
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(last, 33u);
  for (const auto& [l, h] : {std::pair{0, 0}, {0, 1}, {1, 0}}) {
    EXPECT_TRUE(std::ranges::equal(a->head(l, h), b->head(l, h)));
  }
  EXPECT_FALSE(fit_codebooks(KeyCodeKind::kSign, KeySampler(layers, 9, 1), 9, one).ok());
}

TEST(KeySampler, KeepsLateAndEarlyKeysAlike) {
  KeySampler sampler({{1, 32}}, 200, 5);
  std::vector<float> key(32);
  for (int i = 0; i < 4000; ++i) {
    key[0] = static_cast<float>(i);
    sampler.add(0, 0, key.data());
  }
  int late = 0;
  for (size_t i = 0; i < 200; ++i) late += sampler.samples(0, 0)[i * 32] >= 2000.0f ? 1 : 0;
  EXPECT_NEAR(late, 100, 35);  // five standard deviations
}

TEST(KeyTransforms, AnIdentityChangesNoBitAndScalesCancelInScores) {
  const int head_dim = 64;
  const auto samples = random_keys(500, head_dim, 41), keys = random_keys(32, head_dim, 42);
  const auto centroids =
      fit_head_codebook(KeyCodeKind::kProduct, samples.data(), 500, head_dim, head_dim, 1);
  auto plain = KeyCodebooks::create(KeyCodeKind::kProduct, {{1, head_dim}});
  auto doubled = plain;
  ASSERT_TRUE(plain.ok());
  plain->set_head(0, 0, centroids);
  EXPECT_EQ(plain->transform(0, 0).channel, identity_transform(head_dim).channel);
  // All channels twice as large: the same codes, the same scores.
  KeyTransform twice = identity_transform(head_dim);
  std::fill(twice.scale.begin(), twice.scale.end(), 2.0f);
  std::vector<float> larger(centroids);
  for (float& x : larger) x *= 2.0f;
  doubled->set_head(0, 0, larger, twice);
  std::vector<std::byte> a(8 * 32), b(8 * 32);
  encode_keys(plain->head(0, 0), head_dim, keys.data(), head_dim, 32, 0, a.data());
  encode_keys(doubled->head(0, 0), head_dim, keys.data(), head_dim, 32, 0, b.data());
  EXPECT_EQ(a, b);
  const auto queries = random_keys(2, head_dim, 43);
  KeyScanTables one, two;
  build_scan_tables(plain->head(0, 0), head_dim, queries.data(), head_dim, 2, one);
  build_scan_tables(doubled->head(0, 0), head_dim, queries.data(), head_dim, 2, two);
  EXPECT_EQ(one.entries, two.entries);
  EXPECT_EQ(one.bias, two.bias);
}

TEST(KeyTransforms, WhatIsNoPermutationOrNoScaleIsRefused) {
  EXPECT_TRUE(is_valid_transform(shuffled(64), 64));
  EXPECT_FALSE(is_valid_transform(shuffled(64), 32));
  for (const float scale : {0.0f, -1.0f, INFINITY, NAN, 1e-45f}) {
    KeyTransform transform = identity_transform(32);
    transform.scale[5] = scale;
    EXPECT_FALSE(is_valid_transform(transform, 32)) << scale;
  }
  KeyTransform twice = identity_transform(32);
  twice.channel[3] = 4;
  EXPECT_FALSE(is_valid_transform(twice, 32));
  twice.channel[3] = 32;
  EXPECT_FALSE(is_valid_transform(twice, 32));
  KeySampler sampler({{1, 32}}, 100, 1);
  const auto keys = random_keys(50, 32, 3);
  for (int i = 0; i < 50; ++i) sampler.add(0, 0, keys.data() + i * 32);
  ThreadPool one(1);
  EXPECT_FALSE(fit_codebooks(KeyCodeKind::kProduct, sampler, 1, one, nullptr, {twice}).ok());
  EXPECT_FALSE(fit_codebooks(KeyCodeKind::kProduct, sampler, 1, one, nullptr,
                             {identity_transform(32), identity_transform(32)})
                   .ok());
}

class CodebookFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("ikv_codebook_" + std::to_string(std::random_device{}()));
    path_ = folder_ / "sub" / "m.codebook";
    books_ = fitted(KeyCodeKind::kProduct, 64);
    ASSERT_TRUE(save_codebooks(path_, books_, "abc").ok());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Result<KeyCodebooks> load(std::string_view fingerprint = "abc") {
    return load_codebooks(path_, KeyCodeKind::kProduct, {{1, 64}}, fingerprint);
  }
  std::filesystem::path folder_, path_;
  KeyCodebooks books_;
};

TEST_F(CodebookFileTest, RoundTripIsExactAndLeavesNoTemporaryFile) {
  auto loaded = load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_TRUE(std::ranges::equal(loaded->head(0, 0), books_.head(0, 0)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path_.parent_path()), {}), 1);
}

TEST_F(CodebookFileTest, EveryFlippedByteAndEveryCutIsFound) {
  std::ifstream in(path_, std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  const auto write = [&](const std::string& bytes) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  };
  for (size_t i = 0; i < good.size(); i += i < 64 ? 1 : 97) {
    std::string broken = good;
    broken[i] = static_cast<char>(broken[i] ^ 0x40);
    write(broken);
    auto loaded = load();
    ASSERT_FALSE(loaded.ok()) << "byte " << i;
    EXPECT_EQ(loaded.error().code, ErrorCode::kInvalidFile);
    write(good.substr(0, i));
    EXPECT_FALSE(load().ok()) << "cut at " << i;
  }
}

TEST_F(CodebookFileTest, AnotherModelShapeOrKindIsRefusedAndAMissingFileNamed) {
  EXPECT_EQ(load("abd").error().code, ErrorCode::kInvalidFile);
  EXPECT_FALSE(load_codebooks(path_, KeyCodeKind::kSign, {{1, 64}}, "abc").ok());
  EXPECT_FALSE(load_codebooks(path_, KeyCodeKind::kProduct, {{1, 32}}, "abc").ok());
  EXPECT_EQ(load_codebooks(folder_ / "none", KeyCodeKind::kProduct, {{1, 64}}, "abc").error().code,
            ErrorCode::kNotFound);
}

TEST(CodebookPath, FingerprintsCannotLeaveTheCacheFolder) {
  EXPECT_FALSE(default_codebook_path("../x", KeyCodeKind::kProduct).ok());
  EXPECT_FALSE(default_codebook_path("", KeyCodeKind::kProduct).ok());
  auto path = default_codebook_path("a1-b_2", KeyCodeKind::kSign);
  if (path.ok()) {
    EXPECT_EQ(path->filename(), "a1-b_2.sign.codebook");
  }
}

}  // namespace
}  // namespace ikv
