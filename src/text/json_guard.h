// JSON from outside, parsed with a bound on nesting (writing JSON back is recursive).
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace ikv {

using OrderedJson = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 100;

/// Deepest nesting of brackets outside strings.
inline int json_depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

/// Parses `text`; kInvalidArgument naming `what` when it is not JSON or nested beyond the bound.
inline Result<OrderedJson> parse_json(std::string_view text, std::string_view what) {
  if (json_depth(text) > kMaxJsonDepth) {
    return invalid_argument(std::string(what) + " is nested more than " +
                            std::to_string(kMaxJsonDepth) + " levels deep");
  }
  OrderedJson value = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return invalid_argument(std::string(what) + " is not valid JSON");
  return value;
}

/// `value` as Python's json.dumps(ensure_ascii=False) writes it: what models saw in training.
inline std::string python_json(const OrderedJson& value) {
  std::string out;
  if (value.is_array() || value.is_object()) {
    out += value.is_array() ? '[' : '{';
    bool first = true;
    for (const auto& [key, item] : value.items()) {
      if (!first) out += ", ";
      first = false;
      if (value.is_object()) {
        out += OrderedJson(key).dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + ": ";
      }
      out += python_json(item);
    }
    out += value.is_array() ? ']' : '}';
    return out;
  }
  return value.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

}  // namespace ikv
