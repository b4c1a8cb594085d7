// RoPE frequencies from a file's metadata.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "model/architecture.h"
#include "model/metadata.h"
#include "model/tensor_reader.h"

namespace ikv {
namespace {

constexpr float kMaxFactor = 1e6f;
constexpr float kMaxBase = 1e12f;

struct YarnParams {
  double base, factor, beta_fast, beta_slow, attention_factor;
  int original_context;
};

Result<YarnParams> read_yarn(const ModelMetadata& metadata, const ModelConfig& config, float base,
                             float factor) {
  YarnParams yarn{};
  yarn.base = base;
  yarn.factor = factor;
  IKV_ASSIGN_OR_RETURN(
      yarn.original_context,
      metadata.integer("rope.scaling.original_context_length", 1, 1 << 28, config.context_tokens));
  IKV_ASSIGN_OR_RETURN(yarn.beta_fast,
                       metadata.number("rope.scaling.yarn_beta_fast", 1e-3f, kMaxFactor, 32.0f));
  IKV_ASSIGN_OR_RETURN(yarn.beta_slow,
                       metadata.number("rope.scaling.yarn_beta_slow", 1e-3f, kMaxFactor, 1.0f));
  IKV_ASSIGN_OR_RETURN(yarn.attention_factor,
                       metadata.number("rope.scaling.attn_factor", 1e-3f, kMaxFactor, 1.0f));
  if (!(yarn.base > 1.0)) {
    return invalid_file(metadata.key("rope.freq_base") + " must be above 1 for YaRN");
  }
  return yarn;
}

// Peng et al. 2023, section 3.2: pairs that turn more than beta_fast times over the original
// context keep their frequency, those below beta_slow turns are interpolated, those between are
// blended.
void apply_yarn(const YarnParams& yarn, RopeSpec& rope) {
  const double num_dims = rope.num_dims;
  const auto dim_of_turns = [&](double turns) {
    return num_dims * std::log(yarn.original_context / (turns * 2.0 * std::numbers::pi)) /
           (2.0 * std::log(yarn.base));
  };
  const double low = std::max(0.0, std::floor(dim_of_turns(yarn.beta_fast)));
  const double high = std::min(num_dims - 1.0, std::ceil(dim_of_turns(yarn.beta_slow)));
  for (size_t i = 0; i < rope.inverse_freq.size(); ++i) {
    const double ramp =
        std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    const double freq = rope.inverse_freq[i];
    rope.inverse_freq[i] = static_cast<float>(freq * (1.0 - ramp) + freq / yarn.factor * ramp);
  }
  // Section 3.4: the temperature of the softmax, put on both q and k.
  rope.magnitude = static_cast<float>((0.1 * std::log(yarn.factor) + 1.0) * yarn.attention_factor);
}

// Llama 3.1 files carry their scaling as one divisor per pair.
Status apply_frequency_divisors(const GgufFile& file, RopeSpec& rope) {
  std::vector<float> divisors;
  IKV_RETURN_IF_ERROR(
      read_float_tensor(file, kRopeDivisors, static_cast<int>(rope.inverse_freq.size()), divisors));
  for (size_t i = 0; i < divisors.size(); ++i) {
    if (!(std::isfinite(divisors[i]) && divisors[i] > 0.0f)) {
      return invalid_file(std::string(kRopeDivisors) + "[" + std::to_string(i) +
                          "] is not a positive number");
    }
    rope.inverse_freq[i] /= divisors[i];
  }
  return {};
}

}  // namespace

Result<RopeSpec> read_rope(const GgufFile& file, const ModelConfig& config, RopePairs pairs) {
  const ModelMetadata metadata(file, config.architecture);
  RopeSpec rope;
  rope.pairs = pairs;
  IKV_ASSIGN_OR_RETURN(
      rope.num_dims, metadata.integer("rope.dimension_count", 2, config.head_dim, config.head_dim));
  if (rope.num_dims % 2 != 0) {
    return invalid_file(metadata.key("rope.dimension_count") + " is " +
                        std::to_string(rope.num_dims) + "; it must be even");
  }
  IKV_ASSIGN_OR_RETURN(const float base,
                       metadata.number("rope.freq_base", 1e-3f, kMaxBase, 10000.0f));
  for (int i = 0; i < rope.num_dims; i += 2) {
    rope.inverse_freq.push_back(
        static_cast<float>(std::pow(static_cast<double>(base), -double{1.0} * i / rope.num_dims)));
  }
  if (has_tensor(file, kRopeDivisors)) {
    IKV_RETURN_IF_ERROR(apply_frequency_divisors(file, rope));
  }
  // rope.scale_linear is the older spelling of linear scaling.
  const bool old_key = metadata.has("rope.scale_linear");
  IKV_ASSIGN_OR_RETURN(const std::string kind,
                       metadata.text("rope.scaling.type", old_key ? "linear" : "none"));
  if (kind == "none") return rope;
  IKV_ASSIGN_OR_RETURN(const float old_factor,
                       metadata.number("rope.scale_linear", 1e-3f, kMaxFactor, 1.0f));
  IKV_ASSIGN_OR_RETURN(const float factor,
                       metadata.number("rope.scaling.factor", 1e-3f, kMaxFactor, old_factor));
  if (kind == "linear") {
    for (float& freq : rope.inverse_freq) freq /= factor;
  } else if (kind == "yarn") {
    IKV_ASSIGN_OR_RETURN(const YarnParams yarn, read_yarn(metadata, config, base, factor));
    apply_yarn(yarn, rope);
  } else {
    return unsupported(metadata.key("rope.scaling.type") + " is '" + kind +
                       "'; supported: none, linear, yarn, and rope_freqs tensors");
  }
  return rope;
}

}  // namespace ikv
