#include "flag_checks.h"

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>

namespace ikv {
namespace {

// All of `text` as a number; false for an empty text, rests, and overflow.
template <typename T>
bool parse_whole(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end;
}

template <typename T>
std::string show(T value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

template <typename T>
CLI::Validator between(T low, T high, const char* what) {
  const std::string range = show(low) + " to " + show(high);
  auto check = [=](std::string& text) {
    T value{};
    if (parse_whole(text, value) && value >= low && value <= high) return std::string();
    return "must be " + std::string(what) + " from " + range + ", not '" + text + "'";
  };
  return {check, range, "range"};
}

struct Unit {
  const char* name;
  double bytes;
};
constexpr std::array<Unit, 11> kUnits = {{{"", 1},
                                          {"b", 1},
                                          {"k", 1024.0},
                                          {"kib", 1024.0},
                                          {"kb", 1e3},
                                          {"m", 1048576.0},
                                          {"mib", 1048576.0},
                                          {"mb", 1e6},
                                          {"g", 1073741824.0},
                                          {"gib", 1073741824.0},
                                          {"gb", 1e9}}};

}  // namespace

CLI::Validator integer_between(int64_t low, int64_t high) {
  return between<int64_t>(low, high, "a whole number");
}

CLI::Validator number_between(double low, double high) {
  return between<double>(low, high, "a number");
}

Result<uint64_t> parse_bytes(const std::string& text) {
  size_t digits = 0;
  while (digits < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[digits])) != 0 || text[digits] == '.')) {
    ++digits;
  }
  std::string unit;
  for (char c : text.substr(digits)) {
    if (c != ' ') unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  double count = 0;
  if (parse_whole(text.substr(0, digits), count)) {
    for (const Unit& known : kUnits) {
      if (unit != known.name) continue;
      double bytes = count * known.bytes;
      // 2^60 is beyond any machine and safely below what a double and uint64_t hold exactly enough.
      if (bytes >= 1 && bytes <= 1152921504606846976.0) return static_cast<uint64_t>(bytes);
    }
  }
  return invalid_argument("must be a size such as 256MiB, 1.5GiB or a number of bytes, not '" +
                          text + "'");
}

CLI::Validator byte_size() {
  auto check = [](std::string& text) {
    Result<uint64_t> bytes = parse_bytes(text);
    return bytes.ok() ? std::string() : bytes.error().message;
  };
  return {check, "SIZE", "size"};
}

Status parse_logit_bias(const std::string& text, std::map<int32_t, float>& biases) {
  size_t sign = text.find_first_of("+-", 1);
  int32_t token = 0;
  if (sign != std::string::npos && parse_whole(text.substr(0, sign), token) && token >= 0) {
    std::string amount = text.substr(sign + 1);
    float bias = 0;
    if (text[sign] == '-' && amount == "inf") {
      biases[token] = -std::numeric_limits<float>::infinity();
      return {};
    }
    if (parse_whole(amount, bias) && std::isfinite(bias) && bias >= 0) {
      biases[token] = text[sign] == '-' ? -bias : bias;
      return {};
    }
  }
  return invalid_argument("must be TOKEN+BIAS, TOKEN-BIAS or TOKEN-inf, such as 42+1.5, not '" +
                          text + "'");
}

}  // namespace ikv
