// Client JSON: parsed within bounds, read field by field with errors that name the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "server/api_error.h"

namespace ikv {

/// A value, or why the request is refused.
template <typename T>
using ApiResult = std::variant<T, ApiError>;

/// Bounds of a request's JSON. An object's members are looked up one by one, so their number is
/// bounded too: without that bound, a body of a million keys would take hours.
inline constexpr int kMaxRequestDepth = 64;
inline constexpr int kMaxObjectMembers = 1024;
inline constexpr int64_t kMaxJsonValues = 2'000'000;

/// Parses a request body that must be an object. Errors (400): not JSON or not UTF-8, nested too
/// deep, too many members, not an object. Cost: linear in the text.
ApiResult<Json> parse_body(std::string_view text);

/// "messages[3]": the path of an array's element.
std::string element(std::string_view name, size_t index);

/// Where the first mistake of a request is noted; later ones are ignored.
struct RequestFault {
  std::optional<ApiError> error;
  explicit operator bool() const { return error.has_value(); }
  void set(ApiError fault) {
    if (!error) error = std::move(fault);
  }
};

/// Reads the fields of one object. An absent or null field leaves the target as it is; a wrong type
/// or value is noted in the fault, with the field's path.
class FieldReader {
 public:
  /// `path`: of the object itself, empty for the body. All arguments must outlive the reader.
  FieldReader(const Json& object, std::string path, RequestFault& fault)
      : object_(object), path_(std::move(path)), fault_(fault) {}

  /// The field, or null if it is absent or null.
  const Json* find(const char* name) const;
  /// "messages[3].role".
  std::string path_of(std::string_view name) const;

  void read_bool(const char* name, bool& value) const;
  void read_string(const char* name, std::string& value, size_t max_bytes = SIZE_MAX) const;
  /// A whole number in [low, high]; 3.0 counts as 3.
  template <typename T>
  void read_int(const char* name, T& value, int64_t low, int64_t high) const {
    if (std::optional<int64_t> number = int_field(name, low, high)) {
      value = static_cast<T>(*number);
    }
  }
  /// A finite number in [low, high].
  void read_float(const char* name, float& value, double low, double high) const;
  /// The array or object, or null (absent, or the fault is set).
  const Json* find_array(const char* name) const;
  const Json* find_object(const char* name) const;

  /// Notes a fault of field `name`.
  void fail(std::string_view name, std::string code, std::string message) const;
  void fail_type(std::string_view name, std::string_view expected, const Json& got) const;
  void fail_missing(std::string_view name) const;
  RequestFault& fault() const { return fault_; }

 private:
  std::optional<int64_t> int_field(const char* name, int64_t low, int64_t high) const;

  const Json& object_;
  std::string path_;
  RequestFault& fault_;
};

/// A whole number in a JSON value, 3.0 counts as 3; none if it is not one or does not fit.
std::optional<int64_t> whole_number(const Json& value);

}  // namespace ikv
