#include "text/stream_decoder.h"

#include <string_view>

#include "text/utf8.h"

namespace ikv {

std::string StreamDecoder::push(TokenId token) {
  if (!with_control_ && tokenizer_->is_control(token)) return {};
  pending_ += tokenizer_->token_bytes(token);
  std::string out;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.incomplete) break;
    out += step.valid ? rest.substr(0, step.num_bytes) : kReplacementCharacter;
    rest.remove_prefix(step.num_bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string StreamDecoder::finish() {
  std::string out = utf8_repair(pending_);
  pending_.clear();
  return out;
}

}  // namespace ikv
