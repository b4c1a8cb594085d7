#include "server/access.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <fstream>

namespace ikv {
namespace {

// "http://host:port" is the page of this very server if "host:port" is what the client connected
// to.
bool same_origin(std::string_view origin, std::string_view host) {
  const size_t scheme = origin.find("://");
  return scheme != std::string_view::npos && !host.empty() && origin.substr(scheme + 3) == host;
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace

bool AccessRules::origin_allowed(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  return origin.empty() || same_origin(origin, request.header("host")) ||
         std::any_of(origins_.begin(), origins_.end(), [&](const std::string& allowed) {
           return allowed == "*" || allowed == origin;
         });
}

bool AccessRules::key_known(const HttpRequest& request) const {
  std::string_view key = request.header("x-api-key");
  const std::string_view authorization = request.header("authorization");
  constexpr std::string_view kBearer = "Bearer ";
  if (authorization.size() > kBearer.size() &&
      (authorization.starts_with(kBearer) || authorization.starts_with("bearer "))) {
    key = trimmed(authorization.substr(kBearer.size()));
  }
  bool known = false;
  // Every key is compared, in time that does not depend on where it differs.
  for (const std::string& candidate : api_keys_) {
    known |= candidate.size() == key.size() &&
             CRYPTO_memcmp(candidate.data(), key.data(), key.size()) == 0;
  }
  return known;
}

std::optional<ApiError> AccessRules::check(const HttpRequest& request, bool needs_key) const {
  if (!origin_allowed(request)) {
    ApiError error;
    error.status = 403;
    error.code = "origin_not_allowed";
    error.message = "pages of origin '" + std::string(request.header("origin").substr(0, 200)) +
                    "' may not use this server; start it with --cors-origin to allow them";
    return error;
  }
  if (!needs_key || api_keys_.empty() || key_known(request)) return std::nullopt;
  ApiError error;
  error.status = 401;
  error.code = "invalid_api_key";
  error.message = "missing or wrong API key; send it as 'Authorization: Bearer KEY'";
  return error;
}

HttpHeaders AccessRules::cors_headers(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty() || origins_.empty() || !origin_allowed(request)) return {};
  HttpHeaders headers = {{"Access-Control-Allow-Origin", std::string(origin)},
                         {"Vary", "Origin"},
                         {"Access-Control-Expose-Headers", "X-Session-ID, X-IntentKV-Pruned"}};
  if (request.method != "OPTIONS") return headers;
  const std::string_view asked = request.header("access-control-request-headers");
  headers.emplace_back("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
  headers.emplace_back("Access-Control-Allow-Headers",
                       asked.empty() ? "authorization, content-type" : std::string(asked));
  headers.emplace_back("Access-Control-Max-Age", "3600");
  return headers;
}

Result<std::vector<std::string>> read_api_key_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return make_error(ErrorCode::kIo, "cannot read the API key file '" + path + "'");
  std::vector<std::string> keys;
  for (std::string line; std::getline(file, line);) {
    const std::string_view key = trimmed(line);
    if (!key.empty() && key.front() != '#') keys.emplace_back(key);
  }
  if (keys.empty()) return invalid_argument("the API key file '" + path + "' holds no key");
  return keys;
}

}  // namespace ikv
