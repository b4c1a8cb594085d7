// Who may ask: API keys and browsers' origins.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/http_exchange.h"

namespace ikv {

/// Decides by header alone. Thread-safe.
class AccessRules {
 public:
  /// `api_keys` empty: none is asked for. `origins`: of web pages that may call, "*" for all.
  AccessRules(std::vector<std::string> api_keys, std::vector<std::string> origins)
      : api_keys_(std::move(api_keys)), origins_(std::move(origins)) {}

  /// Why the request is refused, or none. A page of a foreign origin is refused as a whole: without
  /// that, any web page that the owner opens could drive a model on the loopback address.
  std::optional<ApiError> check(const HttpRequest& request, bool needs_key) const;
  /// The CORS headers of the answer; empty without an allowed foreign origin.
  HttpHeaders cors_headers(const HttpRequest& request) const;

 private:
  bool origin_allowed(const HttpRequest& request) const;
  bool key_known(const HttpRequest& request) const;

  std::vector<std::string> api_keys_;
  std::vector<std::string> origins_;
};

/// One key a line; blank lines and lines that start with '#' are skipped. Errors: kIo,
/// kInvalidArgument if there is none.
Result<std::vector<std::string>> read_api_key_file(const std::string& path);

}  // namespace ikv
