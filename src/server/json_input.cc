#include "server/json_input.h"

#include <cmath>
#include <utility>
#include <vector>

namespace ikv {
namespace {

// What the text would cost to hold, found without building anything.
std::optional<ApiError> check_shape(std::string_view text) {
  std::vector<int> members;  // by open bracket: commas seen
  int64_t values = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') {
      // Arrays may be long; a negative count marks them.
      members.push_back(c == '{' ? 0 : -1);
      ++values;
      if (members.size() > static_cast<size_t>(kMaxRequestDepth)) {
        return bad_field(
            "", "invalid_json",
            "the body is nested more than " + std::to_string(kMaxRequestDepth) + " levels deep");
      }
    } else if ((c == ']' || c == '}') && !members.empty()) {
      members.pop_back();
    } else if (c == ',') {
      ++values;
      if (!members.empty() && members.back() >= 0 && ++members.back() >= kMaxObjectMembers) {
        return bad_field("", "invalid_json",
                         "an object of the body has more than " +
                             std::to_string(kMaxObjectMembers) + " members");
      }
    }
    if (values > kMaxJsonValues) {
      return bad_field("", "invalid_json",
                       "the body holds more than " + std::to_string(kMaxJsonValues) + " values");
    }
  }
  return std::nullopt;
}

}  // namespace

std::string element(std::string_view name, size_t index) {
  return std::string(name) + "[" + std::to_string(index) + "]";
}

ApiResult<Json> parse_body(std::string_view text) {
  if (std::optional<ApiError> error = check_shape(text)) return *std::move(error);
  try {
    Json body = Json::parse(text);
    if (body.is_object()) return body;
    return bad_field("", "invalid_json",
                     std::string("the body must be a JSON object; got ") + body.type_name());
  } catch (const Json::exception& e) {
    return bad_field("", "invalid_json", std::string("the body is not valid JSON: ") + e.what());
  }
}

std::optional<int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double is not exact
  if (!(std::abs(number) <= kExact) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

const Json* FieldReader::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string FieldReader::path_of(std::string_view name) const {
  if (path_.empty()) return std::string(name);
  return name.empty() ? path_ : path_ + "." + std::string(name);
}

void FieldReader::fail(std::string_view name, std::string code, std::string message) const {
  fault_.set(bad_field(path_of(name), std::move(code), std::move(message)));
}

void FieldReader::fail_type(std::string_view name, std::string_view expected,
                            const Json& got) const {
  fail(name, "invalid_type",
       "'" + path_of(name) + "' must be " + std::string(expected) + "; got " + got.type_name());
}

void FieldReader::fail_missing(std::string_view name) const {
  fail(name, "missing_required_parameter", "'" + path_of(name) + "' is required");
}

void FieldReader::read_bool(const char* name, bool& value) const {
  const Json* field = find(name);
  if (field == nullptr) return;
  if (!field->is_boolean()) return fail_type(name, "true or false", *field);
  value = field->get<bool>();
}

void FieldReader::read_string(const char* name, std::string& value, size_t max_bytes) const {
  const Json* field = find(name);
  if (field == nullptr) return;
  if (!field->is_string()) return fail_type(name, "a string", *field);
  const auto& text = field->get_ref<const std::string&>();
  if (text.size() > max_bytes) {
    return fail(name, "string_above_max_length",
                "'" + path_of(name) + "' has " + std::to_string(text.size()) + " bytes; at most " +
                    std::to_string(max_bytes) + " are allowed");
  }
  value = text;
}

std::optional<int64_t> FieldReader::int_field(const char* name, int64_t low, int64_t high) const {
  const Json* field = find(name);
  if (field == nullptr) return std::nullopt;
  if (!field->is_number()) {
    fail_type(name, "a whole number", *field);
    return std::nullopt;
  }
  const std::optional<int64_t> number = whole_number(*field);
  if (number && *number >= low && *number <= high) return number;
  fail(name, number ? "invalid_value" : "invalid_type",
       "'" + path_of(name) + "' must be a whole number between " + std::to_string(low) + " and " +
           std::to_string(high) + "; got " + field->dump());
  return std::nullopt;
}

void FieldReader::read_float(const char* name, float& value, double low, double high) const {
  const Json* field = find(name);
  if (field == nullptr) return;
  if (!field->is_number()) return fail_type(name, "a number", *field);
  const double number = field->get<double>();
  if (!(number >= low && number <= high)) {
    return fail(name, "invalid_value",
                "'" + path_of(name) + "' must be between " + Json(low).dump() + " and " +
                    Json(high).dump() + "; got " + field->dump());
  }
  value = static_cast<float>(number);
}

const Json* FieldReader::find_array(const char* name) const {
  const Json* field = find(name);
  if (field == nullptr || field->is_array()) return field;
  fail_type(name, "an array", *field);
  return nullptr;
}

const Json* FieldReader::find_object(const char* name) const {
  const Json* field = find(name);
  if (field == nullptr || field->is_object()) return field;
  fail_type(name, "an object", *field);
  return nullptr;
}

}  // namespace ikv
