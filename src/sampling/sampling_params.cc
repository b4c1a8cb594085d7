#include "sampling/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>

namespace ikv {
namespace {

Error out_of_range(std::string_view field, double value, std::string_view allowed) {
  std::ostringstream text;
  text << field << " is " << value << "; it must be " << allowed;
  return invalid_argument(text.str());
}

// `!(a && b)` rather than `< ||  >`: a NaN must fail.
Status check_range(std::string_view field, double value, double low, double high,
                   std::string_view allowed) {
  if (!(value >= low && value <= high)) return out_of_range(field, value, allowed);
  return {};
}

bool is_valid_utf8(std::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto lead = static_cast<unsigned char>(text[i]);
    size_t length = lead < 0x80                   ? 1
                    : lead >= 0xC2 && lead < 0xE0 ? 2
                    : (lead & 0xF0) == 0xE0       ? 3
                    : lead >= 0xF0 && lead < 0xF5 ? 4
                                                  : 0;
    if (length == 0 || i + length > text.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7Fu >> length);
    for (size_t j = 1; j < length; ++j) {
      const auto next = static_cast<unsigned char>(text[i + j]);
      if ((next & 0xC0) != 0x80) return false;
      code = code << 6 | (next & 0x3Fu);
    }
    const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    if (overlong || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    i += length;
  }
  return true;
}

Status check_numbers(const GenerationConfig& config) {
  constexpr double kHuge = 1e6;  // beyond it a float's resolution makes the value meaningless
  IKV_RETURN_IF_ERROR(
      check_range("temperature", config.temperature, 0, kHuge, "at least 0 (0: greedy)"));
  IKV_RETURN_IF_ERROR(
      check_range("top_k", config.top_k, -1, INT32_MAX, "at least 1, or 0 or -1 to switch it off"));
  IKV_RETURN_IF_ERROR(check_range("top_p", config.top_p, 0, 1, "between 0 and 1 (1: off)"));
  IKV_RETURN_IF_ERROR(check_range("min_p", config.min_p, 0, 1, "between 0 and 1 (0: off)"));
  IKV_RETURN_IF_ERROR(
      check_range("repeat_penalty", config.repeat_penalty, 1e-6, kHuge, "above 0 (1: off)"));
  IKV_RETURN_IF_ERROR(check_range("repeat_last_n", config.repeat_last_n, -1, INT32_MAX,
                                  "at least 0, or -1 for all tokens"));
  IKV_RETURN_IF_ERROR(check_range("presence_penalty", config.presence_penalty, -kHuge, kHuge,
                                  "a finite number (0: off)"));
  IKV_RETURN_IF_ERROR(check_range("frequency_penalty", config.frequency_penalty, -kHuge, kHuge,
                                  "a finite number (0: off)"));
  return check_range("max_tokens", config.max_tokens, -1, INT32_MAX,
                     "at least 0, or -1 for no limit");
}

Status check_stops(const GenerationConfig& config) {
  if (config.stop.size() > kMaxStopStrings) {
    return out_of_range("number of stop strings", static_cast<double>(config.stop.size()),
                        "at most " + std::to_string(kMaxStopStrings));
  }
  for (size_t i = 0; i < config.stop.size(); ++i) {
    const std::string& stop = config.stop[i];
    const std::string where = "stop[" + std::to_string(i) + "]";
    if (stop.empty())
      return invalid_argument(where + " is empty; it would end every reply at once");
    if (stop.size() > kMaxStopStringBytes) {
      return invalid_argument(where + " has " + std::to_string(stop.size()) + " bytes; at most " +
                              std::to_string(kMaxStopStringBytes) + " are allowed");
    }
    if (!is_valid_utf8(stop)) return invalid_argument(where + " is not valid UTF-8");
  }
  return {};
}

}  // namespace

Status validate_sampling(const GenerationConfig& config, int vocab_size) {
  IKV_RETURN_IF_ERROR(check_numbers(config));
  for (const auto& [token, bias] : config.logit_bias) {
    if (token < 0 || token >= vocab_size) {
      return invalid_argument("logit_bias names token " + std::to_string(token) +
                              "; this model's tokens are 0.." + std::to_string(vocab_size - 1));
    }
    if (std::isnan(bias) || bias == INFINITY) {
      return out_of_range("logit_bias of token " + std::to_string(token), bias,
                          "a finite number, or -infinity to ban the token");
    }
  }
  const int most_logprobs = std::min(kMaxLogprobs, vocab_size);
  IKV_RETURN_IF_ERROR(
      check_range("number of logprobs", config.num_logprobs, -1, most_logprobs,
                  "between 0 and " + std::to_string(most_logprobs) + ", or -1 for none"));
  return check_stops(config);
}

}  // namespace ikv
