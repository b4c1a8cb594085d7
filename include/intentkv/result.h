// Result<T>: the way every fallible operation of IntentKV reports failure (no exceptions).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

namespace ikv {

/// What kind of failure an Error is; callers map it to exit codes and HTTP statuses.
enum class ErrorCode {
  kInvalidArgument,  ///< The caller's value is wrong (flag, field, API argument).
  kInvalidFile,      ///< A file's bytes are not what its format demands.
  kUnsupported,      ///< Valid, but not something this engine implements.
  kNotFound,         ///< A named thing does not exist.
  kIo,               ///< The operating system refused or failed.
  kOutOfMemory,      ///< The ledger's cap, or the system, has no room.
  kContextExceeded,  ///< More tokens than the model's or the session's context.
  kCancelled,        ///< The caller stopped the work.
  kBusy,             ///< A queue is full or a session is in use.
  kInternal,         ///< A bug of ours that could be contained.
};

/// A failure: its kind and one sentence that says what was wrong, where, and what to do.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
};

namespace internal {
/// Reading a value that is not there is a bug of the caller, not a condition to recover from.
inline void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "intentkv: internal check failed: %s\n", what);
  std::abort();
}
}  // namespace internal

/// Either a value or an Error. Like std::expected of C++23, which g++ 12 lacks in C++20 mode.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Implicit by design, so that `return value;` and `return error;` work.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  /// The value; calling it on an error is a bug of the caller.
  T& value() & {
    internal::require(ok(), "Result::value() on an error");
    return std::get<0>(state_);
  }
  const T& value() const& {
    internal::require(ok(), "Result::value() on an error");
    return std::get<0>(state_);
  }
  T&& value() && {
    internal::require(ok(), "Result::value() on an error");
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const {
    internal::require(!ok(), "Result::error() on a value");
    return std::get<1>(state_);
  }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT: implicit by design

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const {
    internal::require(!ok_, "Result::error() on success");
    return error_;
  }

 private:
  Error error_;
  bool ok_ = true;
};

/// Short for Result<void>.
using Status = Result<void>;

inline Error make_error(ErrorCode code, std::string message) {
  return {code, std::move(message)};
}
inline Error invalid_argument(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}
inline Error invalid_file(std::string message) {
  return {ErrorCode::kInvalidFile, std::move(message)};
}
inline Error unsupported(std::string message) {
  return {ErrorCode::kUnsupported, std::move(message)};
}

}  // namespace ikv
