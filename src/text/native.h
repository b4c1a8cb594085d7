// Small helpers around the C interface of the Rust crate. Internal to src/text.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "ikv_text.h"

namespace ikv::native {

inline IkvSlice slice(std::string_view text) {
  return {text.data(), text.size()};
}

/// Takes an owned text over into a std::string.
inline std::string take(IkvText& text) {
  std::string out(text.data == nullptr ? "" : text.data, text.len);
  ikv_text_free(text);
  text = {nullptr, 0};
  return out;
}

/// The Error for a failed call; `code` is used for IKV_TEXT_INVALID and IKV_TEXT_RAISED.
inline Error failure(int32_t status, IkvText& message, ErrorCode code, std::string_view what) {
  std::string text(what);
  text += take(message);
  return make_error(status == IKV_TEXT_PANIC ? ErrorCode::kInternal : code, std::move(text));
}

}  // namespace ikv::native
