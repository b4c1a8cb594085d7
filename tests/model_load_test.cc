// Loading: what is refused, with which words, and that no damage crashes it.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "model_test_util.h"

namespace ikv::testing {
namespace {

using ::testing::HasSubstr;

std::string load_error(const GgufWriter& writer) {
  ThreadPool threads(1);
  const auto model = load_bytes(writer.finish(), threads, ComputePath::kPacked);
  return model.ok() ? "" : model.error().message;
}

struct BadModel {
  const char* name;
  std::function<void(GgufWriter&)> spoil;
  const char* message_part;
};

class BadModels : public ::testing::TestWithParam<BadModel> {};

TEST_P(BadModels, AreRefusedWithTheCause) {
  GgufWriter writer = tiny_model({});
  ASSERT_EQ(load_error(writer), "");
  GetParam().spoil(writer);
  EXPECT_THAT(load_error(writer), HasSubstr(GetParam().message_part));
}

std::function<void(GgufWriter&)> u32(std::string key, uint32_t value) {
  return [=](GgufWriter& w) { w.set_u32("llama." + key, value); };
}
std::function<void(GgufWriter&)> f32(std::string key, float value) {
  return [=](GgufWriter& w) { w.set_f32("llama." + key, value); };
}
std::function<void(GgufWriter&)> without(std::string key) {
  return [=](GgufWriter& w) { w.erase(key); };
}

const BadModel kBadModels[] = {
    {"Architecture", [](GgufWriter& w) { w.set_string("general.architecture", "mamba"); },
     "'mamba' is not supported; supported: llama"},
    {"NoArchitecture", without("general.architecture"), "general.architecture"},
    {"ZeroLayers", u32("block_count", 0), "llama.block_count' is 0"},
    {"ManyLayers", u32("block_count", 4000000000u), "4000000000"},
    {"OneLayerTooMany", u32("block_count", 3), "blk.2.attn_norm.weight"},
    {"OneLayerTooFew", u32("block_count", 1), "blk.1."},
    {"ZeroWidth", u32("embedding_length", 0), "embedding_length' is 0"},
    {"OtherWidth", u32("embedding_length", 128), "token_embd.weight"},
    {"ZeroHeads", u32("attention.head_count", 0), "head_count' is 0"},
    {"ZeroKvHeads", u32("attention.head_count_kv", 0), "head_count_kv' is 0"},
    {"OddGroups", u32("attention.head_count_kv", 3), "no multiple"},
    {"MoreKvHeads", u32("attention.head_count_kv", 8), "no multiple"},
    {"OtherHeadDim",
     [](GgufWriter& w) {
       w.set_u32("llama.attention.key_length", 32);
       w.set_u32("llama.attention.value_length", 32);
       w.set_u32("llama.rope.dimension_count", 32);
     },
     "blk.0.attn_q.weight"},
    {"UnequalHeadDims", u32("attention.value_length", 32), "only equal sizes"},
    {"ZeroHeadDim", u32("attention.key_length", 0), "key_length' is 0"},
    {"IndivisibleWidth",
     [](GgufWriter& w) {
       w.erase("llama.attention.key_length");
       w.set_u32("llama.attention.head_count", 3);
       w.set_u32("llama.attention.head_count_kv", 3);
     },
     "does not divide"},
    {"ZeroContext", u32("context_length", 0), "context_length' is 0"},
    {"NoContext", without("llama.context_length"), "no 'llama.context_length'"},
    {"EpsilonNan", f32("attention.layer_norm_rms_epsilon", NAN), "epsilon' is nan"},
    {"EpsilonNegative", f32("attention.layer_norm_rms_epsilon", -1.0f), "epsilon' is -1"},
    {"NoEpsilon", without("llama.attention.layer_norm_rms_epsilon"), "epsilon"},
    {"RopeOdd", u32("rope.dimension_count", 63), "even"},
    {"RopeWide", u32("rope.dimension_count", 128), "dimension_count' is 128"},
    {"RopeBase", f32("rope.freq_base", 0.0f), "freq_base' is 0"},
    {"RopeBaseInfinite", f32("rope.freq_base", INFINITY), "freq_base' is inf"},
    {"RopeKind", [](GgufWriter& w) { w.set_string("llama.rope.scaling.type", "longrope"); },
     "'longrope'; supported: none, linear, yarn"},
    {"RopeFactor",
     [](GgufWriter& w) {
       w.set_string("llama.rope.scaling.type", "linear");
       w.set_f32("llama.rope.scaling.factor", 0.0f);
     },
     "factor' is 0"},
    {"HeadCountText", [](GgufWriter& w) { w.set_string("llama.attention.head_count", "9"); },
     "not a single whole number"},
    {"Experts", u32("expert_count", 8), "mixture-of-experts"},
    {"VocabSize", u32("vocab_size", 97), "llama.vocab_size says 97"},
    {"Tokens",
     [](GgufWriter& w) {
       w.set_strings("tokenizer.ggml.tokens", {"a", "b"});
     },
     "tokenizer has 2 tokens"},
    {"NoEmbedding", [](GgufWriter& w) { w.erase_tensor("token_embd.weight"); },
     "no tensor 'token_embd.weight'"},
    {"NoWeight", [](GgufWriter& w) { w.erase_tensor("blk.1.ffn_up.weight"); },
     "no tensor 'blk.1.ffn_up.weight'"},
    {"UnknownTensor",
     [](GgufWriter& w) {
       w.add_tensor({"blk.0.attn_sinks.weight",
                     WeightType::kF32,
                     {4},
                     random_weights(WeightType::kF32, 4, 1)});
     },
     "blk.0.attn_sinks.weight"},
    {"NormSize",
     [](GgufWriter& w) {
       w.add_tensor(
           {"output_norm.weight", WeightType::kF32, {64}, random_weights(WeightType::kF32, 64, 1)});
     },
     "[64]"},
    {"RopeDivisorsZero",
     [](GgufWriter& w) {
       w.add_tensor({"rope_freqs.weight", WeightType::kF32, {32}, std::vector<std::byte>(128)});
     },
     "rope_freqs.weight[0]"},
    {"RopeDivisorsShort",
     [](GgufWriter& w) {
       w.add_tensor({"rope_freqs.weight", WeightType::kF32, {16}, std::vector<std::byte>(64)});
     },
     "rope_freqs.weight"},
};
INSTANTIATE_TEST_SUITE_P(All, BadModels, ::testing::ValuesIn(kBadModels),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(ModelLoadTest, ConfigHoldsTheFilesNumbers) {
  ThreadPool threads(2);
  const LoadedModel loaded = load_tiny({}, threads, ComputePath::kPacked);
  const ModelConfig& config = loaded.model->config();
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, "tiny");
  EXPECT_EQ(config.vocab_size, 96);
  EXPECT_EQ(config.context_tokens, 128);
  EXPECT_TRUE(config.tied_output);
  size_t num_parameters = 0;
  for (const auto& [name, values] : loaded.reference.weights) num_parameters += values.size();
  EXPECT_EQ(config.num_parameters, num_parameters);
  EXPECT_GT(loaded.model->weight_bytes(), 0u);
  EXPECT_EQ(loaded.model->attention_spec(1).num_kv_heads, 2);
  EXPECT_FLOAT_EQ(loaded.model->attention_spec(0).scale, 0.125f);
}

TEST(ModelLoadTest, KeyLengthDefaultsToTheWidthsShareAndKvHeadsToHeads) {
  ThreadPool threads(1);
  TinyModelOptions options;
  options.num_kv_heads = 4;
  GgufWriter writer = tiny_model(options);
  for (const char* key : {"attention.key_length", "attention.value_length", "rope.dimension_count",
                          "rope.freq_base", "attention.head_count_kv"}) {
    writer.erase(std::string("llama.") + key);
  }
  const auto model = load_bytes(writer.finish(), threads, ComputePath::kPacked);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ((*model)->config().head_dim, 64);
  EXPECT_EQ((*model)->config().num_kv_heads, 4);
}

const RopeSpec& rope_of(const Model& model) {
  return *model.attention_spec(0).rope;
}

TEST(ModelLoadTest, RopeScalingsFollowTheirFormulas) {
  ThreadPool threads(1);
  const auto load = [&](const std::function<void(GgufWriter&)>& change) {
    GgufWriter writer = tiny_model({});
    change(writer);
    auto model = load_bytes(writer.finish(), threads, ComputePath::kPacked);
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
    return std::move(model).value();
  };
  const auto plain = load([](GgufWriter&) {});
  ASSERT_EQ(rope_of(*plain).inverse_freq.size(), 32u);
  EXPECT_FLOAT_EQ(rope_of(*plain).inverse_freq[16], 0.01f);

  const auto linear = load([](GgufWriter& w) {
    w.set_string("llama.rope.scaling.type", "linear");
    w.set_f32("llama.rope.scaling.factor", 4.0f);
  });
  EXPECT_FLOAT_EQ(rope_of(*linear).inverse_freq[16], 0.0025f);
  const auto old_spelling = load([](GgufWriter& w) { w.set_f32("llama.rope.scale_linear", 4.0f); });
  EXPECT_EQ(rope_of(*old_spelling).inverse_freq, rope_of(*linear).inverse_freq);

  const auto divided = load([](GgufWriter& w) {
    std::vector<float> divisors(32, 2.0f);
    std::vector<std::byte> bytes(128);
    std::memcpy(bytes.data(), divisors.data(), bytes.size());
    w.add_tensor({"rope_freqs.weight", WeightType::kF32, {32}, bytes});
  });
  EXPECT_FLOAT_EQ(rope_of(*divided).inverse_freq[16], 0.005f);

  const auto yarn = load([](GgufWriter& w) {
    w.set_string("llama.rope.scaling.type", "yarn");
    w.set_f32("llama.rope.scaling.factor", 8.0f);
    w.set_u32("llama.rope.scaling.original_context_length", 4096);
  });
  // Fast pairs keep their frequency, slow ones are interpolated in full. With 64 dims, base 1e4 and
  // 4096 tokens, 32 turns are at pair 10.4 and 1 turn at pair 22.5.
  EXPECT_EQ(rope_of(*yarn).inverse_freq[10], rope_of(*plain).inverse_freq[10]);
  EXPECT_FLOAT_EQ(rope_of(*yarn).inverse_freq[23], rope_of(*plain).inverse_freq[23] / 8.0f);
  const float blend = 6.0f / 13.0f;  // pair 16 between 10 and 23
  EXPECT_FLOAT_EQ(rope_of(*yarn).inverse_freq[16], 0.01f * (1.0f - blend) + 0.01f / 8.0f * blend);
  EXPECT_FLOAT_EQ(rope_of(*yarn).magnitude, 0.1f * std::log(8.0f) + 1.0f);
}

// Byte flips in the head and truncations: an error or a model, never a crash. What loads must run.
TEST(ModelLoadTest, DamagedFilesNeverCrash) {
  ThreadPool threads(1);
  TinyModelOptions options;
  options.type = WeightType::kQ4_0;
  options.num_layers = 1;
  options.hidden_size = 32;
  options.ffn_size = 32;
  options.num_heads = 2;
  options.num_kv_heads = 1;
  options.head_dim = 16;
  options.vocab_size = 8;
  const std::vector<std::byte> good = tiny_model(options).finish();
  std::mt19937 random(11);
  int num_refused = 0;
  int num_loaded = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes = good;
    const size_t head_bytes = std::min<size_t>(bytes.size(), 2200);
    for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
      bytes[random() % head_bytes] = static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    auto model = load_bytes(bytes, threads, ComputePath::kPacked);
    if (!model.ok()) {
      EXPECT_FALSE(model.error().message.empty());
      ++num_refused;
      continue;
    }
    ++num_loaded;
    ContiguousAttention attention((*model)->config().num_layers, 1, threads);
    Workspace workspace(threads);
    run_parts(**model, attention, workspace, {{0, {1, 2, 3}}});
  }
  EXPECT_GT(num_refused, 500);
  EXPECT_GT(num_loaded, 100);
}

}  // namespace
}  // namespace ikv::testing
