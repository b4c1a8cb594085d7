// PromptCache: a conversation that grew by a turn is not tokenised again from its start.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace ikv {

/// Remembers the last few tokenised prompts. Special tokens are hard borders, so the tokens up to
/// one of them do not depend on what follows: the common front of a new prompt and a remembered one
/// is taken over up to the last such border, with exactly the tokens that tokenising afresh would
/// give. Thread-safe.
class PromptCache {
 public:
  PromptCache(std::shared_ptr<const Tokenizer> tokenizer, size_t max_entries)
      : tokenizer_(std::move(tokenizer)), max_entries_(max_entries) {}

  /// Tokenizer::encode_with_offsets(text, literal), from the cache as far as possible.
  Result<Encoding> encode(const std::string& text, const std::vector<ByteRange>& literal);

  /// Bytes that the last call (of any thread) did not have to tokenise; for tests and statistics.
  size_t last_reused_bytes() const;

 private:
  struct Entry {
    std::string text;
    std::vector<ByteRange> literal;
    Encoding encoding;
  };
  /// Tokens of `entry` that hold for `text` too.
  size_t reusable_tokens(const Entry& entry, std::string_view text,
                         const std::vector<ByteRange>& literal) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  size_t max_entries_;
  mutable std::mutex mutex_;
  std::list<std::shared_ptr<const Entry>> entries_;  // most recently used first
  size_t last_reused_bytes_ = 0;
};

}  // namespace ikv
