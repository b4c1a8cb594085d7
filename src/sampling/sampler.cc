#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "sampling/sampling_params.h"

namespace ikv {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

// SplitMix64's output function (Steele, Lea, Flood 2014) on seed and counter: a stream whose state
// is two integers, alike on every platform.
uint64_t mix(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

uint64_t random_seed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

}  // namespace

Result<std::unique_ptr<Sampler>> Sampler::create(const GenerationConfig& config, int vocab_size) {
  IKV_RETURN_IF_ERROR(validate_sampling(config, vocab_size));
  const uint64_t seed = config.seed ? *config.seed : random_seed();
  return std::unique_ptr<Sampler>(new Sampler(config, vocab_size, seed));
}

Sampler::Sampler(const GenerationConfig& config, int vocab_size, uint64_t seed)
    : config_(config),
      vocab_size_(static_cast<size_t>(vocab_size)),
      seed_(seed),
      penalties_on_(config.repeat_last_n != 0 &&
                    (config.repeat_penalty != 1.0f || config.frequency_penalty != 0.0f ||
                     config.presence_penalty != 0.0f)),
      window_(config.repeat_last_n) {}

void Sampler::accept(TokenId token) {
  if (penalties_on_) window_.add(token);
}

std::span<const float> Sampler::adjust(std::span<const float> logits,
                                       std::span<const uint32_t> allowed) {
  if (allowed.empty() && config_.logit_bias.empty() && !penalties_on_) return logits;
  adjusted_.assign(logits.begin(), logits.end());
  if (!allowed.empty()) {
    for (size_t i = 0; i < adjusted_.size(); ++i) {
      const bool ok = i / 32 < allowed.size() && (allowed[i / 32] >> (i % 32) & 1u) != 0;
      if (!ok) adjusted_[i] = kBanned;
    }
  }
  for (const auto& [token, bias] : config_.logit_bias) {
    float& logit = adjusted_[static_cast<size_t>(token)];
    // An infinite logit plus a ban would be NaN, which is dropped too: banned either way.
    logit = bias == kBanned ? kBanned : logit + bias;
  }
  if (penalties_on_) {
    window_.apply(config_.repeat_penalty, config_.frequency_penalty, config_.presence_penalty,
                  adjusted_);
  }
  return adjusted_;
}

void Sampler::filter(std::span<const float> logits) {
  const bool top_p_on = config_.top_p < 1.0f;
  if (config_.temperature == 0.0f) {
    select_best(logits, 1, candidates_);
    return;
  }
  if (config_.top_k > 0) {
    select_best(logits, static_cast<size_t>(config_.top_k), candidates_);
    if (top_p_on) keep_nucleus(config_.top_p, candidates_);
  } else if (top_p_on) {
    select_nucleus(logits, config_.top_p, candidates_);
  } else {
    select_all(logits, candidates_);
  }
  if (config_.min_p <= 0.0f || candidates_.empty()) return;
  float max = kBanned;
  for (const Candidate& c : candidates_) max = std::max(max, c.logit);
  const float least = max + std::log(config_.min_p);
  std::erase_if(candidates_, [least](const Candidate& c) { return c.logit < least; });
}

double Sampler::next_uniform() {
  return static_cast<double>(mix(seed_, num_draws_++) >> 11) * 0x1p-53;
}

TokenId Sampler::draw() {
  const double u = next_uniform();  // also when there is no choice: draws are counted by token
  float max = kBanned;
  for (const Candidate& c : candidates_) max = std::max(max, c.logit);
  double total = 0.0;
  for (Candidate& c : candidates_) {
    // The division is in double: a tiny temperature must give 0, not inf * 0.
    const double scaled = c.logit == max
                              ? 0.0
                              : (static_cast<double>(c.logit) - static_cast<double>(max)) /
                                    static_cast<double>(config_.temperature);
    c.logit = static_cast<float>(std::exp(scaled));
    total += static_cast<double>(c.logit);
  }
  double left = u * total;
  TokenId last_possible = kNoToken;
  for (const Candidate& c : candidates_) {
    if (c.logit <= 0.0f) continue;
    last_possible = c.token;
    left -= static_cast<double>(c.logit);
    if (left < 0.0) break;
  }
  return last_possible;
}

void Sampler::report_logprobs(std::span<const float> logits, SampledChoice& choice) {
  const double total = log_sum_exp(logits);
  const auto logprob = [&](float logit) {
    // An infinite logit has all the mass; inf - inf would be NaN.
    return std::isinf(total) ? 0.0f : static_cast<float>(static_cast<double>(logit) - total);
  };
  choice.logprob = logprob(logits[static_cast<size_t>(choice.token)]);
  select_best(logits, static_cast<size_t>(config_.num_logprobs), candidates_);
  choice.alternatives.reserve(candidates_.size());
  for (const Candidate& c : candidates_) {
    choice.alternatives.push_back({c.token, logprob(c.logit)});
  }
}

Result<SampledChoice> Sampler::sample(std::span<const float> logits,
                                      std::span<const uint32_t> allowed) {
  IKV_CHECK(logits.size() == vocab_size_);
  filter(adjust(logits, allowed));
  if (candidates_.empty()) {
    select_best(logits, 1, candidates_);
    if (candidates_.empty()) {
      return make_error(
          ErrorCode::kInternal,
          "the model gave no finite logit for the next token; its file may be damaged");
    }
    return invalid_argument(
        "no token is left to sample: constraint and logit_bias together ban all of them");
  }
  SampledChoice choice;
  choice.token = config_.temperature == 0.0f ? candidates_[0].token : draw();
  if (config_.num_logprobs >= 0) report_logprobs(logits, choice);
  return choice;
}

}  // namespace ikv
