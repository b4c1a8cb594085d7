#include "model/metadata.h"

#include <cmath>
#include <sstream>

namespace ikv {
namespace {

// A number of any integer type; nothing if it is no integer or too large for the caller anyway.
std::optional<int64_t> as_integer(const GgufValue& value) {
  if (const auto* number = std::get_if<uint64_t>(&value)) {
    if (*number > static_cast<uint64_t>(INT64_MAX)) return INT64_MAX;
    return static_cast<int64_t>(*number);
  }
  if (const auto* number = std::get_if<int64_t>(&value)) return *number;
  return std::nullopt;
}

std::optional<double> as_number(const GgufValue& value) {
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto number = as_integer(value)) return static_cast<double>(*number);
  return std::nullopt;
}

Error missing(const std::string& key) {
  return invalid_file("the model's metadata has no '" + key + "'");
}

template <typename T>
Error out_of_range(const std::string& key, T value, T low, T high) {
  std::ostringstream text;
  text << "the model's '" << key << "' is " << value << "; it must be between " << low << " and "
       << high;
  return invalid_file(text.str());
}

}  // namespace

bool ModelMetadata::has(std::string_view name) const {
  return file_.find(key(name)) != nullptr;
}

Result<int> ModelMetadata::integer(std::string_view name, int low, int high,
                                   std::optional<int> fallback) const {
  const GgufValue* value = file_.find(key(name));
  if (value == nullptr) {
    if (fallback) return *fallback;
    return missing(key(name));
  }
  const auto number = as_integer(*value);
  if (!number) {
    return invalid_file("the model's '" + key(name) +
                        "' is not a single whole number, as this architecture needs");
  }
  if (*number < low || *number > high) {
    return out_of_range<int64_t>(key(name), *number, low, high);
  }
  return static_cast<int>(*number);
}

Result<float> ModelMetadata::number(std::string_view name, float low, float high,
                                    std::optional<float> fallback) const {
  const GgufValue* value = file_.find(key(name));
  if (value == nullptr) {
    if (fallback) return *fallback;
    return missing(key(name));
  }
  const auto number = as_number(*value);
  if (!number) return invalid_file("the model's '" + key(name) + "' is not a number");
  // Negated, so that a NaN fails too.
  if (!(*number >= static_cast<double>(low) && *number <= static_cast<double>(high))) {
    return out_of_range<double>(key(name), *number, low, high);
  }
  return static_cast<float>(*number);
}

Result<std::string> ModelMetadata::text(std::string_view name, std::string_view fallback) const {
  const GgufValue* value = file_.find(key(name));
  if (value == nullptr) return std::string(fallback);
  if (const auto* text = std::get_if<std::string_view>(value)) return std::string(*text);
  return invalid_file("the model's '" + key(name) + "' is not a text");
}

Result<std::string> file_architecture(const GgufFile& file) {
  IKV_ASSIGN_OR_RETURN(const std::string_view name, file.string("general.architecture"));
  return std::string(name);
}

}  // namespace ikv
