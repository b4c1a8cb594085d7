// Sampler: from a row of logits to the next token of one reply.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "intentkv/config.h"
#include "sampling/candidates.h"
#include "sampling/penalties.h"

namespace ikv {

/// A token and the natural logarithm of its probability under the model's own distribution.
struct ScoredToken {
  TokenId token = kNoToken;
  float logprob = 0.0f;
};

/// What one sample() gave. `alternatives`: the most likely tokens, best first, the chosen one among
/// them if it belongs there.
struct SampledChoice {
  TokenId token = kNoToken;
  float logprob = 0.0f;  ///< 0 when no logprobs were asked for
  std::vector<ScoredToken> alternatives;
};

/// The chain, in the order of llama.cpp's default chain: allowed-token mask, logit bias, penalties
/// (repeat, then frequency and presence), top-k, top-p, min-p, temperature, draw. Temperature 0
/// takes the best token after the penalties (the lowest id among equals). Logprobs are of the
/// logits as given, before all of it. A draw depends only on seed, number of draws before it and
/// logits. One per reply. Not thread-safe.
class Sampler {
 public:
  /// Checks `config` (see validate_sampling()); without a seed it takes one from the system.
  static Result<std::unique_ptr<Sampler>> create(const GenerationConfig& config, int vocab_size);

  /// Tells of a token of the text so far (prompt first, then each token of the reply), for the
  /// penalties. sample() does not do this by itself, since a sampled token may still be discarded.
  void accept(TokenId token);

  /// Chooses from `logits` [vocab_size]. `allowed`: empty, or a bit per token (lowest bit of word 0
  /// is token 0; tokens beyond its end are not allowed). NaN counts as impossible. Errors:
  /// kInternal if no logit is a number, kInvalidArgument if mask and bans leave no token.
  Result<SampledChoice> sample(std::span<const float> logits,
                               std::span<const uint32_t> allowed = {});

  /// The seed in use: the caller's or the one that was drawn.
  uint64_t seed() const { return seed_; }

 private:
  Sampler(const GenerationConfig& config, int vocab_size, uint64_t seed);
  std::span<const float> adjust(std::span<const float> logits, std::span<const uint32_t> allowed);
  void filter(std::span<const float> logits);
  TokenId draw();
  double next_uniform();
  void report_logprobs(std::span<const float> logits, SampledChoice& choice);

  GenerationConfig config_;
  size_t vocab_size_;
  uint64_t seed_;
  uint64_t num_draws_ = 0;
  bool penalties_on_;
  PenaltyWindow window_;
  std::vector<float> adjusted_;  // empty until bias, penalties or a mask need a copy
  std::vector<Candidate> candidates_;
};

}  // namespace ikv
