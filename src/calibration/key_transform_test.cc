// Channels are dealt evenly, scaled by what queries make of them, and coded better for it.
#include "calibration/key_transform.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "kv/key_codebook_fit.h"

namespace ikv {
namespace {

constexpr int kDim = 32;

// Energies that fall by half from channel to channel.
std::vector<double> falling(double factor) {
  std::vector<double> energy;
  for (int c = 0; c < kDim; ++c) energy.push_back(std::pow(factor, -c));
  return energy;
}

TEST(KeyTransform, IsAPermutationWithTheQueriesSizesAsScales) {
  const std::vector<double> keys(kDim, 3.0);
  const std::vector<double> queries = falling(1.1);
  const KeyTransform transform = make_key_transform(keys, queries);
  ASSERT_TRUE(is_valid_transform(transform, kDim));
  for (size_t c = 0; c < kDim; ++c) {
    EXPECT_NEAR(transform.scale[c], std::sqrt(queries[transform.channel[c]]), 1e-5);
  }
}

TEST(KeyTransform, TheStrongestChannelsDoNotShareASubVector) {
  const KeyTransform transform = make_key_transform(falling(1.2), std::vector<double>(kDim, 1.0));
  for (size_t m = 0; m < kDim / kKeySubDim; ++m) {
    int strong = 0;
    for (size_t d = 0; d < kKeySubDim; ++d) {
      strong += transform.channel[m * kKeySubDim + d] < kDim / kKeySubDim ? 1 : 0;
    }
    EXPECT_EQ(strong, 1) << "sub-vector " << m;
  }
}

TEST(KeyTransform, EnergiesOfNothingOrNotFiniteStillGiveAValidOne) {
  EXPECT_TRUE(is_valid_transform(
      make_key_transform(std::vector<double>(kDim, 0.0), std::vector<double>(kDim, 0.0)), kDim));
  std::vector<double> broken = falling(1.5);
  broken[3] = NAN;
  broken[4] = INFINITY;
  EXPECT_TRUE(is_valid_transform(make_key_transform(broken, broken), kDim));
}

TEST(KeyTransform, ScoresOfUnevenChannelsAreMuchCloserThanWithoutIt) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  // Neighbouring channels are alike in size, as those of one RoPE pair are.
  const auto draw = [&](double factor, int count) {
    std::vector<float> rows;
    for (int i = 0; i < count; ++i) {
      for (int c = 0; c < kDim; ++c) {
        rows.push_back(static_cast<float>(std::pow(factor, -(c / 2))) * normal(random));
      }
    }
    return rows;
  };
  const auto keys = draw(1.4, 1024);
  const auto queries = draw(1.1, 64);
  KeySampler sampler({{1, kDim}}, 1024, 1);
  std::vector<double> key_energy(kDim, 0.0), query_energy(kDim, 0.0);
  for (int i = 0; i < 1024; ++i) sampler.add(0, 0, keys.data() + i * kDim);
  for (size_t i = 0; i < keys.size(); ++i) key_energy[i % kDim] += keys[i] * keys[i];
  for (size_t i = 0; i < queries.size(); ++i) query_energy[i % kDim] += queries[i] * queries[i];
  ThreadPool one(1);
  double errors[2] = {};
  for (const bool transformed : {false, true}) {
    std::vector<KeyTransform> transforms;
    if (transformed) transforms.push_back(make_key_transform(key_energy, query_energy));
    const auto books = fit_codebooks(KeyCodeKind::kProduct, sampler, 1, one, nullptr, transforms);
    ASSERT_TRUE(books.ok());
    std::vector<std::byte> codes(key_code_bytes_per_token(kDim) * 16);
    std::vector<float> decoded(kDim);
    for (int i = 0; i < 1024; ++i) {
      encode_keys(books->head(0, 0), kDim, keys.data() + i * kDim, kDim, 1, 0, codes.data());
      decode_key(books->head(0, 0), kDim, codes.data(), 0, decoded.data());
      for (int c = 0; c < kDim; ++c) decoded[static_cast<size_t>(c)] -= keys[i * kDim + c];
      const float* query = queries.data() + i % 64 * kDim;
      const double error = std::inner_product(decoded.begin(), decoded.end(), query, 0.0);
      errors[transformed ? 1 : 0] += error * error;
    }
  }
  EXPECT_LT(errors[1], 0.6 * errors[0]);
}

}  // namespace
}  // namespace ikv
