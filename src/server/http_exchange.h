// One HTTP request and the way back to its client, apart from sockets and TLS.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ikv {

/// A request whose size and header have passed the limits.
struct HttpRequest {
  std::string method;  ///< "GET"
  std::string path;    ///< percent-decoded, without query
  std::string body;
  std::map<std::string, std::string> headers;  ///< by lower-case name; the first of equal names

  /// The header's value, or empty.
  std::string_view header(const std::string& lower_case_name) const {
    const auto found = headers.find(lower_case_name);
    return found == headers.end() ? std::string_view() : std::string_view(found->second);
  }
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// A whole response.
struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;
};

/// A request with its answer, either one respond() or start_stream(), write_stream()…,
/// finish_stream(). Used from the server's I/O thread only. After a false result the client is gone
/// and nothing more can be sent.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;

  virtual HttpRequest& request() = 0;
  /// Headers that every answer to this request carries.
  virtual HttpHeaders& common_headers() = 0;
  virtual boost::asio::awaitable<bool> respond(HttpResponse response) = 0;
  virtual boost::asio::awaitable<bool> start_stream(HttpHeaders headers) = 0;
  /// Waits until the client has taken the text, at most the write timeout.
  virtual boost::asio::awaitable<bool> write_stream(std::string text) = 0;
  virtual boost::asio::awaitable<bool> finish_stream() = 0;
  /// True once the client has closed its side. Costs one system call.
  virtual bool client_gone() = 0;
};

/// "%2F" and the like decoded; broken sequences stay as they are.
std::string percent_decode(std::string_view text);

}  // namespace ikv
