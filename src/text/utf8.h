// Finding and repairing broken UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ikv {

/// What stands at the front of a byte string.
struct Utf8Step {
  size_t num_bytes = 0;     ///< of the character, or of the broken part
  bool valid = false;       ///< a whole, allowed character
  bool incomplete = false;  ///< valid so far, but the string ends inside the character
};

/// Looks at the first character of `bytes` (not empty). A broken part is the longest start of a
/// character that is not continued, as the Unicode standard recommends (section 3.9, "maximal
/// subparts"): surrogates and overlong forms are broken.
Utf8Step utf8_step(std::string_view bytes);

/// `bytes` with every broken part replaced by U+FFFD.
std::string utf8_repair(std::string_view bytes);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

}  // namespace ikv
