// The forward against a reference in double, for every weight format and batch shape.
#include <gmock/gmock.h>

#include <cmath>

#include "model_test_util.h"

namespace ikv::testing {
namespace {

const std::vector<TokenId> kTokens = {3, 17, 95, 0, 42, 42, 8, 61, 77, 5, 30, 12};

// Largest error relative to the logits' spread, in all rows.
double relative_error(const std::vector<float>& actual,
                      const std::vector<std::vector<double>>& expected) {
  double error = 0.0;
  double squares = 0.0;
  size_t i = 0;
  for (const auto& row : expected) {
    for (const double value : row) {
      error = std::max(error, std::abs(actual[i++] - value));
      squares += value * value;
    }
  }
  EXPECT_EQ(i, actual.size());
  return error / std::sqrt(squares / static_cast<double>(i));
}

double error_of(const TinyModelOptions& options, ComputePath path) {
  ThreadPool threads(2);
  const LoadedModel loaded = load_tiny(options, threads, path);
  ContiguousAttention attention(options.num_layers, 1, threads);
  Workspace workspace(threads);
  const auto logits = run_parts(*loaded.model, attention, workspace, {{0, kTokens}});
  return relative_error(logits, reference_logits(loaded.reference, kTokens));
}

class ForwardOfType : public ::testing::TestWithParam<WeightType> {};

TEST_P(ForwardOfType, EqualsTheReferenceInDouble) {
  TinyModelOptions options;
  options.type = GetParam();
  EXPECT_LT(error_of(options, ComputePath::kReference), 1e-5);
  EXPECT_LT(error_of(options, ComputePath::kPacked), 2e-3);
}

INSTANTIATE_TEST_SUITE_P(All, ForwardOfType,
                         ::testing::Values(WeightType::kF32, WeightType::kF16, WeightType::kBF16,
                                           WeightType::kQ8_0, WeightType::kQ4_0, WeightType::kQ4_1,
                                           WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ2_K,
                                           WeightType::kQ3_K, WeightType::kQ4_K, WeightType::kQ5_K,
                                           WeightType::kQ6_K),
                         [](const auto& test) {
                           return std::string(weight_type_info(test.param).name);
                         });

TEST(ModelForwardTest, UntiedOutputAndBiasesEqualTheReference) {
  TinyModelOptions options;
  options.type = WeightType::kQ8_0;
  options.tied_output = false;
  options.biases = true;
  EXPECT_LT(error_of(options, ComputePath::kReference), 1e-5);
  EXPECT_LT(error_of(options, ComputePath::kPacked), 2e-3);
}

TEST(ModelForwardTest, UnusualShapesEqualTheReference) {
  TinyModelOptions
      wide_heads;  // heads that together are wider than the model, no GQA, odd vocabulary
  wide_heads.hidden_size = 96;
  wide_heads.ffn_size = 160;
  wide_heads.num_heads = 3;
  wide_heads.num_kv_heads = 3;
  wide_heads.head_dim = 48;
  wide_heads.vocab_size = 101;
  EXPECT_LT(error_of(wide_heads, ComputePath::kReference), 1e-5);
  EXPECT_LT(error_of(wide_heads, ComputePath::kPacked), 2e-3);
  TinyModelOptions smallest;  // one head, one layer
  smallest.num_layers = 1;
  smallest.hidden_size = 2;
  smallest.ffn_size = 1;
  smallest.num_heads = 1;
  smallest.num_kv_heads = 1;
  smallest.head_dim = 2;
  EXPECT_LT(error_of(smallest, ComputePath::kReference), 1e-5);
  EXPECT_LT(error_of(smallest, ComputePath::kPacked), 2e-3);
}

class BatchInvariance : public ::testing::TestWithParam<ComputePath> {};

TEST_P(BatchInvariance, ARowsLogitsAreBitIdenticalAloneInChunksAndInARaggedBatch) {
  ThreadPool threads(2);
  TinyModelOptions options;
  options.type = WeightType::kQ4_1;
  const LoadedModel loaded = load_tiny(options, threads, GetParam());
  Workspace workspace(threads);
  const size_t vocab = static_cast<size_t>(options.vocab_size);

  ContiguousAttention alone(options.num_layers, 1, threads);
  std::vector<float> one_by_one;
  for (const TokenId token : kTokens) {
    const auto row = run_parts(*loaded.model, alone, workspace, {{0, {token}}});
    one_by_one.insert(one_by_one.end(), row.begin(), row.end());
  }
  ContiguousAttention whole(options.num_layers, 1, threads);
  EXPECT_EQ(run_parts(*loaded.model, whole, workspace, {{0, kTokens}}), one_by_one);

  // Sequence 1 in pieces among prefills and decodes of others.
  ContiguousAttention mixed(options.num_layers, 3, threads);
  const auto slice = [](size_t begin, size_t end) {
    return std::vector<TokenId>(kTokens.begin() + static_cast<ptrdiff_t>(begin),
                                kTokens.begin() + static_cast<ptrdiff_t>(end));
  };
  const std::vector<TokenId> other(21, 7);
  std::vector<float> pieces;
  const auto collect = [&](const std::vector<float>& logits, size_t first_row, size_t num_rows) {
    pieces.insert(pieces.end(), logits.begin() + static_cast<ptrdiff_t>(first_row * vocab),
                  logits.begin() + static_cast<ptrdiff_t>((first_row + num_rows) * vocab));
  };
  collect(run_parts(*loaded.model, mixed, workspace, {{0, other}, {1, slice(0, 5)}}), 21, 5);
  collect(run_parts(*loaded.model, mixed, workspace, {{0, {9}}, {1, slice(5, 6)}, {2, other}}), 1,
          1);
  collect(run_parts(*loaded.model, mixed, workspace, {{1, slice(6, 12)}, {2, {1}}}), 0, 6);
  EXPECT_EQ(pieces, one_by_one);
}

TEST_P(BatchInvariance, AskingForFewRowsGivesTheSameLogitsAsAskingForAll) {
  ThreadPool threads(2);
  TinyModelOptions options;
  options.type = WeightType::kQ4_0;
  const LoadedModel loaded = load_tiny(options, threads, GetParam());
  Workspace workspace(threads);
  const auto vocab = static_cast<ptrdiff_t>(options.vocab_size);
  ContiguousAttention all(options.num_layers, 1, threads);
  const auto every = run_parts(*loaded.model, all, workspace, {{0, kTokens}});
  ContiguousAttention some(options.num_layers, 1, threads);
  const auto few = run_parts(*loaded.model, some, workspace, {{0, kTokens}}, {2, 3, 11});
  std::vector<float> expected;
  for (const ptrdiff_t row : {2, 3, 11}) {
    expected.insert(expected.end(), every.begin() + row * vocab, every.begin() + (row + 1) * vocab);
  }
  EXPECT_EQ(few, expected);
}

INSTANTIATE_TEST_SUITE_P(Paths, BatchInvariance,
                         ::testing::Values(ComputePath::kReference, ComputePath::kPacked),
                         [](const auto& test) {
                           return test.param == ComputePath::kReference ? "Reference" : "Packed";
                         });

TEST(ModelForwardTest, TokensAndRowsOutOfRangeAreRefusedAndNothingIsAttended) {
  class NoAttention : public LayerAttention {
   public:
    Status attend(int, const AttentionSpec&, float*, float*, const float*, float*) override {
      ADD_FAILURE() << "attend() was called";
      return {};
    }
  };
  ThreadPool threads(1);
  const LoadedModel loaded = load_tiny({}, threads, ComputePath::kPacked);
  Workspace workspace(threads);
  NoAttention attention;
  std::vector<float> logits(1000);
  const auto message = [&](std::vector<TokenId> tokens, std::vector<int32_t> rows) {
    const Status status =
        loaded.model->forward({tokens, rows}, attention, workspace, logits.data());
    return status.ok() ? std::string() : status.error().message;
  };
  EXPECT_THAT(message({1, 96}, {0}), ::testing::HasSubstr("token 96"));
  EXPECT_THAT(message({-1}, {0}), ::testing::HasSubstr("token -1"));
  EXPECT_THAT(message({1, 2}, {2}), ::testing::HasSubstr("got 2"));
  EXPECT_THAT(message({1, 2}, {1, 1}), ::testing::HasSubstr("ascend"));
  EXPECT_THAT(message({1, 2}, {-1}), ::testing::HasSubstr("got -1"));
  EXPECT_EQ(message({}, {}), "");
}

TEST(ModelForwardTest, AnErrorOfAttentionEndsTheForwardWithIt) {
  class FailingAttention : public LayerAttention {
   public:
    Status attend(int layer, const AttentionSpec&, float*, float*, const float*, float*) override {
      ++num_calls;
      if (layer == 1) return make_error(ErrorCode::kOutOfMemory, "no room");
      return {};
    }
    int num_calls = 0;
  };
  ThreadPool threads(1);
  TinyModelOptions options;
  options.num_layers = 3;
  const LoadedModel loaded = load_tiny(options, threads, ComputePath::kPacked);
  Workspace workspace(threads);
  FailingAttention attention;
  const std::vector<TokenId> tokens = {1};
  const Status status = loaded.model->forward({tokens, {}}, attention, workspace, nullptr);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kOutOfMemory);
  EXPECT_EQ(attention.num_calls, 2);
}

}  // namespace
}  // namespace ikv::testing
