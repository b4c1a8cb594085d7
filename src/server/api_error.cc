#include "server/api_error.h"

#include <utility>

namespace ikv {
namespace {

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

std::string anthropic_type(const ApiError& error) {
  switch (error.status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return error.status < 500 ? "invalid_request_error" : "api_error";
  }
}

}  // namespace

ApiError bad_field(std::string param, std::string code, std::string message) {
  ApiError error;
  error.param = std::move(param);
  error.code = std::move(code);
  error.message = std::move(message);
  return error;
}

ApiError from_engine_error(const Error& error, const std::string& param) {
  switch (error.code) {
    case ErrorCode::kContextExceeded:
      return bad_field(param, "context_length_exceeded", error.message);
    case ErrorCode::kInvalidArgument:
      return bad_field(param, "invalid_value", error.message);
    case ErrorCode::kUnsupported:
      return bad_field(param, "unsupported_value", error.message);
    case ErrorCode::kNotFound:
      return {404, "invalid_request_error", error.message, param, "not_found", 0};
    case ErrorCode::kBusy:
      return {503, "server_error", error.message, "", "server_busy", 1};
    case ErrorCode::kOutOfMemory:
      return {503, "server_error", error.message, "", "kv_memory_exhausted", 5};
    case ErrorCode::kCancelled:
      return {503, "server_error", error.message, "", "cancelled", 1};
    case ErrorCode::kInvalidFile:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      break;
  }
  return {500, "server_error", error.message, "", "internal_error", 0};
}

Json openai_error_json(const ApiError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

Json anthropic_error_json(const ApiError& error) {
  return {{"type", "error"},
          {"error",
           {{"type", anthropic_type(error)},
            {"message", error.message},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

std::string dump_json(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ikv
