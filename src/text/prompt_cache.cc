#include "text/prompt_cache.h"

#include <algorithm>
#include <utility>

namespace ikv {
namespace {

/// `literal` from byte `from` on, moved to begin there.
std::vector<ByteRange> literal_tail(const std::vector<ByteRange>& literal, size_t from) {
  std::vector<ByteRange> out;
  for (const ByteRange& range : literal) {
    if (range.end > from) out.push_back({std::max(range.begin, from) - from, range.end - from});
  }
  return out;
}

size_t common_bytes(std::string_view a, std::string_view b) {
  const size_t shorter = std::min(a.size(), b.size());
  return static_cast<size_t>(std::mismatch(a.begin(), a.begin() + shorter, b.begin()).first -
                             a.begin());
}

/// The first byte from which two lists of ranges differ.
size_t common_literal(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
  for (size_t i = 0;; ++i) {
    if (i == a.size() && i == b.size()) return SIZE_MAX;
    if (i == a.size()) return b[i].begin;
    if (i == b.size()) return a[i].begin;
    if (a[i] == b[i]) continue;
    return a[i].begin == b[i].begin ? std::min(a[i].end, b[i].end)
                                    : std::min(a[i].begin, b[i].begin);
  }
}

}  // namespace

size_t PromptCache::reusable_tokens(const Entry& entry, std::string_view text,
                                    const std::vector<ByteRange>& literal) const {
  size_t common = std::min(common_bytes(entry.text, text), common_literal(entry.literal, literal));
  if (common < text.size() || common < entry.text.size()) {
    // A special token that begins before the difference may be one of several with this front.
    common -= std::min(common, tokenizer_->max_special_bytes());
  }
  const std::vector<uint64_t>& ends = entry.encoding.ends;
  size_t tokens = std::upper_bound(ends.begin(), ends.end(), common) - ends.begin();
  while (tokens > 0 && !tokenizer_->is_special(entry.encoding.tokens[tokens - 1])) --tokens;
  return tokens;
}

Result<Encoding> PromptCache::encode(const std::string& text,
                                     const std::vector<ByteRange>& literal) {
  std::vector<std::shared_ptr<const Entry>> entries;
  {
    std::lock_guard lock(mutex_);
    entries.assign(entries_.begin(), entries_.end());
  }
  std::shared_ptr<const Entry> best;
  size_t best_tokens = 0;
  for (const auto& entry : entries) {
    const size_t tokens = reusable_tokens(*entry, text, literal);
    if (tokens > best_tokens) {
      best = entry;
      best_tokens = tokens;
    }
  }
  Encoding out;
  size_t reused = 0;
  if (best != nullptr) {
    const Encoding& old = best->encoding;
    out.tokens.assign(old.tokens.begin(), old.tokens.begin() + best_tokens);
    out.ends.assign(old.ends.begin(), old.ends.begin() + best_tokens);
    reused = out.ends.back();
  }
  IKV_ASSIGN_OR_RETURN(const Encoding tail,
                       tokenizer_->encode_with_offsets(std::string_view(text).substr(reused),
                                                       literal_tail(literal, reused)));
  out.tokens.insert(out.tokens.end(), tail.tokens.begin(), tail.tokens.end());
  out.ends.reserve(out.tokens.size());
  for (uint64_t end : tail.ends) out.ends.push_back(end + reused);
  auto entry = std::make_shared<const Entry>(Entry{text, literal, out});
  std::lock_guard lock(mutex_);
  last_reused_bytes_ = reused;
  entries_.push_front(std::move(entry));
  // A prompt that this one continues is not needed any more.
  if (best != nullptr && text.compare(0, best->text.size(), best->text) == 0) {
    entries_.remove(best);
  }
  while (entries_.size() > max_entries_) entries_.pop_back();
  return out;
}

size_t PromptCache::last_reused_bytes() const {
  std::lock_guard lock(mutex_);
  return last_reused_bytes_;
}

}  // namespace ikv
