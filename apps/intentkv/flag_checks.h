// Checks of flag values: CLI11's own ranges let NaN, trailing text and overflow through.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"

namespace ikv {

/// A whole decimal number in [low, high]; anything else is refused with the bounds.
CLI::Validator integer_between(int64_t low, int64_t high);

/// A finite number in [low, high]; NaN, infinities and trailing text are refused.
CLI::Validator number_between(double low, double high);

/// A size such as `268435456`, `256MiB`, `1.5GiB`, `200MB`, at least one byte. Errors:
/// kInvalidArgument.
Result<uint64_t> parse_bytes(const std::string& text);

/// parse_bytes() as a check that leaves the text as it is.
CLI::Validator byte_size();

/// llama.cpp's form of a logit bias: `TOKEN+BIAS`, `TOKEN-BIAS`, or `TOKEN-inf` for a ban.
Status parse_logit_bias(const std::string& text, std::map<int32_t, float>& biases);

}  // namespace ikv
