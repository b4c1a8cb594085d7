#include "engine/reply.h"

#include <utility>

#include "sampling/sampling_params.h"

namespace ikv {

Result<std::unique_ptr<Reply>> Reply::create(const GenerationConfig& config,
                                             const Tokenizer& tokenizer) {
  IKV_RETURN_IF_ERROR(validate_sampling(config, tokenizer.vocab_size()));
  IKV_ASSIGN_OR_RETURN(auto sampler, Sampler::create(config, tokenizer.vocab_size()));
  return std::unique_ptr<Reply>(new Reply(config, tokenizer, std::move(sampler)));
}

Reply::Reply(const GenerationConfig& config, const Tokenizer& tokenizer,
             std::unique_ptr<Sampler> sampler)
    : tokenizer_(tokenizer),
      ignore_eos_(config.ignore_eos),
      wants_logprobs_(config.num_logprobs >= 0),
      sampler_(std::move(sampler)),
      decoder_(tokenizer),
      stop_matcher_(config.stop) {}

void Reply::accept_prompt(std::span<const TokenId> tokens) {
  for (const TokenId token : tokens) sampler_->accept(token);
}

Result<Reply::Step> Reply::advance(std::span<const float> logits) {
  IKV_ASSIGN_OR_RETURN(const SampledChoice choice, sampler_->sample(logits));
  Step step;
  ++num_sampled_;
  if (tokenizer_.is_end_of_generation(choice.token) && !ignore_eos_) {
    step.finished = true;
    return step;
  }
  sampler_->accept(choice.token);
  tokens_.push_back(choice.token);
  const std::string piece = decoder_.push(choice.token);
  decoded_bytes_ += piece.size();
  text_end_.push_back(decoded_bytes_ + decoder_.pending_bytes());
  note_logprobs(choice);
  step.event.text = stop_matcher_.feed(piece);
  text_ += step.event.text;
  if (!step.event.text.empty()) step.event.tokens = std::exchange(unsent_, {});
  step.finished = stop_matcher_.stopped();
  return step;
}

void Reply::note_logprobs(const SampledChoice& choice) {
  if (!wants_logprobs_) return;
  const auto describe = [&](TokenId token, float logprob) {
    return TokenLogprob{token, std::string(tokenizer_.token_bytes(token)), logprob};
  };
  SampledToken token;
  token.chosen = describe(choice.token, choice.logprob);
  for (const ScoredToken& other : choice.alternatives) {
    token.alternatives.push_back(describe(other.token, other.logprob));
  }
  unsent_.push_back(token);
  sampled_.push_back(std::move(token));
}

GenerationEvent Reply::finish() {
  GenerationEvent event;
  if (!stop_matcher_.stopped()) {
    event.text = stop_matcher_.feed(decoder_.finish());
    event.text += stop_matcher_.finish();
    text_ += event.text;
  }
  event.tokens = std::exchange(unsent_, {});
  return event;
}

size_t Reply::num_kept_tokens() const {
  if (!stop_matcher_.stopped()) return tokens_.size();
  size_t kept = 0;
  while (kept < tokens_.size() && text_end_[kept] <= text_.size()) ++kept;
  return kept;
}

}  // namespace ikv
