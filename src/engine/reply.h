// Reply: from sampled tokens to the text that a client gets.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "intentkv/config.h"
#include "intentkv/generation.h"
#include "sampling/sampler.h"
#include "sampling/stop_matcher.h"
#include "text/stream_decoder.h"
#include "text/tokenizer.h"

namespace ikv {

/// One reply in the making: samples, decodes, watches for the end. Not thread-safe.
class Reply {
 public:
  /// Errors: those of the sampler's checks. `tokenizer` must outlive the reply.
  static Result<std::unique_ptr<Reply>> create(const GenerationConfig& config,
                                               const Tokenizer& tokenizer);

  /// Tells the penalties of the prompt.
  void accept_prompt(std::span<const TokenId> tokens);

  /// What one token added. `finished`: the reply has ended by itself (end token or stop string).
  struct Step {
    GenerationEvent event;
    bool finished = false;
  };
  /// Samples the next token from a row of logits.
  Result<Step> advance(std::span<const float> logits);

  /// The end: what was held back of text. Call once.
  GenerationEvent finish();

  /// Tokens of the reply, an end token excluded; all have been or will be evaluated but the last.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  /// Tokens whose text lies wholly within text(): what the session remembers. After finish().
  size_t num_kept_tokens() const;
  /// Sampled tokens, an end token included.
  int32_t num_sampled() const { return num_sampled_; }
  const std::string& text() const { return text_; }
  std::vector<SampledToken> take_sampled() { return std::move(sampled_); }
  bool stopped_by_string() const { return stop_matcher_.stopped(); }

 private:
  Reply(const GenerationConfig& config, const Tokenizer& tokenizer,
        std::unique_ptr<Sampler> sampler);
  void note_logprobs(const SampledChoice& choice);

  const Tokenizer& tokenizer_;
  const bool ignore_eos_;
  const bool wants_logprobs_;
  std::unique_ptr<Sampler> sampler_;
  StreamDecoder decoder_;
  StopMatcher stop_matcher_;
  std::vector<TokenId> tokens_;
  std::vector<size_t> text_end_;  ///< bytes of decoded text up to and with each token
  size_t decoded_bytes_ = 0;
  int32_t num_sampled_ = 0;
  std::string text_;
  std::vector<SampledToken> sampled_;
  std::vector<SampledToken> unsent_;
};

}  // namespace ikv
