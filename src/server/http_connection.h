// One client's connection: requests in, responses out, within limits and timeouts.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "server/http_server.h"

namespace ikv {

/// What the connections of a server share; I/O thread only.
struct ConnectionContext {
  const ServerConfig* config = nullptr;
  const HttpHandler* handler = nullptr;
  boost::asio::ssl::context* tls = nullptr;  ///< null: plain HTTP
  bool draining = false;
  bool aborting = false;
  int num_connections = 0;
  uint64_t body_bytes = 0;  ///< held by all requests now
};

/// A handle on a running connection.
class ConnectionControl {
 public:
  virtual ~ConnectionControl() = default;
  /// True between requests.
  virtual bool idle() const = 0;
  /// Ends it at once.
  virtual void abort() = 0;
};

/// Serves a connection to its end. `started` gets the handle, which dies with the coroutine.
boost::asio::awaitable<void> serve_connection(boost::asio::ip::tcp::socket socket,
                                              ConnectionContext& context,
                                              std::function<void(ConnectionControl*)> started);

/// Answers 503 to a connection above the limit and closes it.
boost::asio::awaitable<void> refuse_connection(boost::asio::ip::tcp::socket socket);

}  // namespace ikv
