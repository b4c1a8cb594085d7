// StopMatcher: finds stop strings in streamed text, wherever token borders fall.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ikv {

/// Holds back the end of the text while it could still become a stop string, and cuts the text
/// before the first stop string that completes (of several that complete at the same byte, the
/// longest). The result does not depend on how the text was cut into pieces. One prefix automaton
/// (Knuth, Morris, Pratt 1977) per string: O(bytes × strings). Not thread-safe.
class StopMatcher {
 public:
  /// Strings must not be empty (validate_sampling() sees to it); empty ones are ignored.
  explicit StopMatcher(const std::vector<std::string>& stops);

  /// Takes the next piece and returns what can be shown now. Once stopped() it returns nothing.
  std::string feed(std::string_view piece);

  /// The text held back, when no more will come. Empty if stopped().
  std::string finish();

  bool stopped() const { return matched_ >= 0; }
  /// Index of the stop string that was found, or -1.
  int matched() const { return matched_; }

 private:
  struct Automaton {
    std::string pattern;
    std::vector<int32_t> fallback;  // longest proper border of pattern[0..i]
    int32_t length = 0;             // bytes of pattern that the text's end matches now
    int index = 0;                  // in the caller's list
  };

  bool advance(char byte);

  std::vector<Automaton> automata_;
  std::string held_;  // as long as the longest partial match
  int matched_ = -1;
};

}  // namespace ikv
