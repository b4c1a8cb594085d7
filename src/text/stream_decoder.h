// StreamDecoder: tokens to text as they come, never in broken UTF-8.
#pragma once

#include <string>

#include "core/ids.h"
#include "text/tokenizer.h"

namespace ikv {

/// Decodes one reply. Bytes of an unfinished character are held back until the tokens that complete
/// it; bytes that cannot become a character come out as U+FFFD. Not thread-safe. The tokenizer must
/// outlive it.
class StreamDecoder {
 public:
  /// `with_control`: control tokens show as their names; else they add no text.
  explicit StreamDecoder(const Tokenizer& tokenizer, bool with_control = false)
      : tokenizer_(&tokenizer), with_control_(with_control) {}

  /// The text that `token` completes: valid UTF-8, often empty.
  std::string push(TokenId token);

  /// What is held back, as U+FFFD. The decoder can be used anew afterwards.
  std::string finish();

  /// Bytes held back for the next token, 0..3.
  size_t pending_bytes() const { return pending_.size(); }

 private:
  const Tokenizer* tokenizer_;
  bool with_control_;
  std::string pending_;
};

}  // namespace ikv
