// The compute paths against a forward in double on tiny random models of every weight format, and
// the estimator that the logit oracle stands on.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "model_test_util.h"
#include "oracle_data.h"
#include "oracle_isa.h"

namespace ikv::testing {
namespace {

constexpr int kVocab = 512;
constexpr size_t kNumTokens = 128;
constexpr uint32_t kNumModels = 4;
// Random weights give nearly flat predictions; real ones are sharper, and KL grows with sharpness.
constexpr float kSharpness = 4.0f;
// Well below the 1e-3 that must hold, so that a loss of precision shows: measured are at most 2e-11
// and 3e-7.
constexpr double kMaxMeanKlReference = 1e-9;
constexpr double kMaxMeanKlPacked = 1e-5;

TinyModelOptions tiny_options(WeightType type, uint32_t seed) {
  TinyModelOptions options;
  options.type = type;
  options.num_layers = 4;
  options.vocab_size = kVocab;
  options.context_tokens = static_cast<int>(kNumTokens);
  options.tied_output = seed % 2 == 0;
  options.seed = seed;
  return options;
}

std::vector<TokenId> random_tokens(uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<TokenId> token(0, kVocab - 1);
  std::vector<TokenId> tokens(kNumTokens);
  for (TokenId& t : tokens) t = token(random);
  return tokens;
}

// Most rows in one prefill, the last ones as decode steps, which have kernels of their own.
std::vector<float> sharpened_logits(const Model& model, const std::vector<TokenId>& tokens,
                                    ThreadPool& threads) {
  ContiguousAttention attention(model.config().num_layers, 1, threads);
  Workspace workspace(threads);
  const auto prefill_end = tokens.end() - 16;
  std::vector<float> logits =
      run_parts(model, attention, workspace, {{0, {tokens.begin(), prefill_end}}});
  for (auto token = prefill_end; token != tokens.end(); ++token) {
    const auto row = run_parts(model, attention, workspace, {{0, {*token}}});
    logits.insert(logits.end(), row.begin(), row.end());
  }
  for (float& logit : logits) logit *= kSharpness;
  return logits;
}

// A model, its input and what the forward in double predicts.
struct TinyCase {
  std::vector<std::byte> bytes;
  std::vector<TokenId> tokens;
  std::vector<float> expected;
};

// Made once and kept: all paths of a weight format share it, and the forward in double is slow.
const TinyCase& tiny_case(WeightType type, uint32_t seed) {
  static std::map<std::pair<WeightType, uint32_t>, TinyCase> cases;
  TinyCase& made = cases[{type, seed}];
  if (!made.bytes.empty()) return made;
  ThreadPool threads(2);
  LoadedModel loaded = load_tiny(tiny_options(type, seed), threads, ComputePath::kReference);
  made.bytes = std::move(loaded.bytes);
  made.tokens = random_tokens(seed);
  for (const auto& row : reference_logits(loaded.reference, made.tokens)) {
    for (const double logit : row) made.expected.push_back(static_cast<float>(logit * kSharpness));
  }
  return made;
}

struct TinyPath {
  ComputePath path = ComputePath::kPacked;
  CpuIsa isa = CpuIsa::kScalar;
};

std::vector<TinyPath> tiny_paths() {
  std::vector<TinyPath> paths = {{ComputePath::kReference, supported_isas().back()}};
  for (const CpuIsa isa : supported_isas()) paths.push_back({ComputePath::kPacked, isa});
  return paths;
}

class OracleTinyTest : public ::testing::TestWithParam<std::tuple<WeightType, TinyPath>> {};

TEST_P(OracleTinyTest, PredictsAsTheForwardInDouble) {
  const auto& [type, path] = GetParam();
  const ForcedIsa forced(path.isa);
  ThreadPool threads(2);
  size_t same_top = 0, rows = 0;
  double kl = 0.0;
  // The scalar kernels are slow; matmul_test compares their products with the others' bit by bit.
  const bool scalar = path.path == ComputePath::kPacked && path.isa == CpuIsa::kScalar;
  const uint32_t num_models = scalar ? 1 : kNumModels;
  for (uint32_t seed = 1; seed <= num_models; ++seed) {
    const TinyCase& tiny = tiny_case(type, seed);
    const auto model = load_bytes(tiny.bytes, threads, path.path);
    ASSERT_TRUE(model.ok()) << model.error().message;
    const auto actual = sharpened_logits(**model, tiny.tokens, threads);
    const std::vector<float>& expected = tiny.expected;
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t begin = 0; begin < actual.size(); begin += kVocab, ++rows) {
      kl += exact_kl(expected.data() + begin, actual.data() + begin, kVocab);
      same_top +=
          arg_max(expected.data() + begin, kVocab) == arg_max(actual.data() + begin, kVocab);
    }
  }
  const double top1 = static_cast<double>(same_top) / static_cast<double>(rows);
  kl /= static_cast<double>(rows);
  std::printf("  %zu tokens, top-1 %.2f %%, mean KL %.2e\n", rows, 100.0 * top1, kl);
  EXPECT_GE(top1, 0.99);
  EXPECT_LE(kl, path.path == ComputePath::kReference ? kMaxMeanKlReference : kMaxMeanKlPacked);
}

INSTANTIATE_TEST_SUITE_P(
    All, OracleTinyTest,
    ::testing::Combine(::testing::Values(WeightType::kF32, WeightType::kF16, WeightType::kBF16,
                                         WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
                                         WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ2_K,
                                         WeightType::kQ3_K, WeightType::kQ4_K, WeightType::kQ5_K,
                                         WeightType::kQ6_K),
                       ::testing::ValuesIn(tiny_paths())),
    [](const auto& test) {
      const TinyPath& path = std::get<TinyPath>(test.param);
      return std::string(weight_type_info(std::get<WeightType>(test.param)).name) + "_" +
             (path.path == ComputePath::kReference ? "Reference"
                                                   : std::string(cpu_isa_name(path.isa)));
    });

// A row in the golden's form: what make_logit_goldens.py does, in C++.
OracleRow compact(const std::vector<float>& logits, std::mt19937& random) {
  constexpr size_t kNumTop = 32, kNumSamples = 16;
  const float largest = logits[arg_max(logits.data(), logits.size())];
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit - largest));
  const auto log_p = [&](uint32_t id) {
    return static_cast<float>(logits[id] - largest - std::log(sum));
  };
  std::vector<uint32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0u);
  std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  OracleRow row;
  std::vector<double> tail;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i < kNumTop) row.top_ids.push_back(ids[i]);
    tail.push_back(i < kNumTop ? 0.0 : std::exp(static_cast<double>(log_p(ids[i]))));
  }
  std::discrete_distribution<size_t> sample(tail.begin(), tail.end());
  for (size_t i = 0; i < kNumSamples; ++i) row.sample_ids.push_back(ids[sample(random)]);
  for (const uint32_t id : row.top_ids) row.top_log_p.push_back(log_p(id));
  for (const uint32_t id : row.sample_ids) row.sample_log_p.push_back(log_p(id));
  return row;
}

TEST(OracleEstimatorTest, MeanEstimateOfKlIsTheWholeSums) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (const float noise : {0.0f, 0.01f, 0.05f, 0.3f}) {
    double estimated = 0.0, exact = 0.0;
    constexpr int kNumRows = 400;
    for (int i = 0; i < kNumRows; ++i) {
      std::vector<float> reference(4096), other(4096);
      for (float& logit : reference) logit = 2.5f * normal(random);
      for (size_t j = 0; j < other.size(); ++j) other[j] = reference[j] + noise * normal(random);
      estimated += estimate_kl(compact(reference, random), other.data(), other.size());
      exact += exact_kl(reference.data(), other.data(), other.size());
    }
    EXPECT_NEAR(estimated / kNumRows, exact / kNumRows, 0.03 * exact / kNumRows + 1e-9) << noise;
  }
}

}  // namespace
}  // namespace ikv::testing
