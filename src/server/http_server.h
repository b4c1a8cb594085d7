// Accepts connections and reads requests within limits; what they mean is the handler's.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "server/http_exchange.h"
#include "server/server_config.h"

namespace ikv {

/// Answers one request.
using HttpHandler = std::function<boost::asio::awaitable<void>(HttpExchange&)>;

/// An HTTP/1.1 server on one thread. run() blocks; stop() may come from any thread.
class HttpServer {
 public:
  /// Binds the address. Errors: kInvalidArgument (address, TLS files), kIo (port in use).
  static Result<std::unique_ptr<HttpServer>> create(const ServerConfig& config);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// The port that it listens on.
  uint16_t port() const;
  /// Serves until stop() and the end of what was running then. `on_signals`: SIGTERM and SIGINT
  /// stop it; a second one ends running replies at once.
  void run(HttpHandler handler, bool on_signals);
  /// Thread-safe. No new connections; replies that run may end, within the drain timeout.
  void stop();
  /// I/O thread: the drain timeout is over, replies must end now.
  bool aborting() const;
  /// Connections that are open. I/O thread.
  int num_connections() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ikv
