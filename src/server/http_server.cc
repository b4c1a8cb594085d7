#include "server/http_server.h"

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <exception>
#include <list>
#include <optional>
#include <utility>

#include "base/log.h"
#include "server/http_connection.h"

namespace ikv {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct HttpServer::Impl {
  explicit Impl(const ServerConfig& server_config) : config(server_config) {
    context.config = &config;
  }

  ServerConfig config;
  asio::io_context io{1};
  std::optional<asio::ssl::context> tls;
  tcp::acceptor acceptor{io};
  asio::signal_set signals{io};
  asio::steady_timer drain_timer{io};
  HttpHandler handler;
  ConnectionContext context;
  std::list<ConnectionControl*> connections;

  Status load_tls();
  Status listen();
  asio::awaitable<void> accept_loop();
  asio::awaitable<void> run_connection(tcp::socket socket);
  void begin_drain();
  void abort_all();
  void wait_for_signal();
  void finish_if_done();
};

Status HttpServer::Impl::load_tls() {
  if (config.tls_cert_file.empty() && config.tls_key_file.empty()) return {};
  if (config.tls_cert_file.empty() || config.tls_key_file.empty()) {
    return invalid_argument("TLS needs both a certificate file and a key file");
  }
  error_code error;
  tls.emplace(asio::ssl::context::tls_server);
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_tlsv1 |
                       asio::ssl::context::no_tlsv1_1,
                   error);
  tls->use_certificate_chain_file(config.tls_cert_file, error);
  if (error) {
    return invalid_argument("TLS certificate '" + config.tls_cert_file + "': " + error.message());
  }
  tls->use_private_key_file(config.tls_key_file, asio::ssl::context::pem, error);
  if (error) return invalid_argument("TLS key '" + config.tls_key_file + "': " + error.message());
  context.tls = &*tls;
  return {};
}

Status HttpServer::Impl::listen() {
  error_code error;
  const asio::ip::address address = asio::ip::make_address(config.host, error);
  if (error) {
    return invalid_argument("'" + config.host +
                            "' is not an IP address; use 127.0.0.1, 0.0.0.0, ::1 or the like");
  }
  const tcp::endpoint endpoint(address, config.port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) return {};
  return make_error(ErrorCode::kIo, "cannot listen on " + config.host + ":" +
                                        std::to_string(config.port) + ": " + error.message());
}

asio::awaitable<void> HttpServer::Impl::accept_loop() {
  while (acceptor.is_open()) {
    error_code error;
    tcp::socket socket =
        co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      if (!acceptor.is_open()) break;
      // Out of file descriptors, most likely: trying again at once would only spin.
      log(LogLevel::kWarning, "accept: " + error.message());
      asio::steady_timer pause(io, std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    if (context.num_connections >= config.max_connections) {
      asio::co_spawn(io, refuse_connection(std::move(socket)), asio::detached);
      continue;
    }
    ++context.num_connections;
    asio::co_spawn(io, run_connection(std::move(socket)), [this](const std::exception_ptr& thrown) {
      --context.num_connections;
      if (thrown) log(LogLevel::kError, "a connection ended by an exception");
      finish_if_done();
    });
  }
}

asio::awaitable<void> HttpServer::Impl::run_connection(tcp::socket socket) {
  const auto place = connections.insert(connections.end(), nullptr);
  try {
    co_await serve_connection(std::move(socket), context,
                              [place](ConnectionControl* control) { *place = control; });
  } catch (const std::exception& e) {
    log(LogLevel::kError, std::string("connection: ") + e.what());
  }
  connections.erase(place);
}

void HttpServer::Impl::begin_drain() {
  if (context.draining) return abort_all();
  context.draining = true;
  error_code ignored;
  acceptor.close(ignored);
  for (ConnectionControl* connection : connections) {
    if (connection != nullptr && connection->idle()) connection->abort();
  }
  drain_timer.expires_after(config.drain_timeout);
  drain_timer.async_wait([this](const error_code& error) {
    if (!error) abort_all();
  });
  finish_if_done();
}

// Handlers see `aborting` within 100 ms and end their replies; who then still hangs is cut off.
void HttpServer::Impl::abort_all() {
  if (context.num_connections == 0 || std::exchange(context.aborting, true)) return;
  drain_timer.expires_after(std::chrono::seconds(1));
  drain_timer.async_wait([this](const error_code& error) {
    if (error) return;
    for (ConnectionControl* connection : connections) {
      if (connection != nullptr) connection->abort();
    }
  });
}

void HttpServer::Impl::finish_if_done() {
  if (!context.draining || context.num_connections > 0) return;
  drain_timer.cancel();
  error_code ignored;
  signals.cancel(ignored);
}

void HttpServer::Impl::wait_for_signal() {
  signals.async_wait([this](const error_code& error, int) {
    if (error) return;
    begin_drain();
    if (context.num_connections > 0) wait_for_signal();
  });
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::create(const ServerConfig& config) {
  try {
    auto impl = std::make_unique<Impl>(config);
    Status status = impl->load_tls();
    if (status.ok()) status = impl->listen();
    if (!status.ok()) return status.error();
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const std::exception& e) {
    return make_error(ErrorCode::kIo, std::string("cannot set up the server: ") + e.what());
  }
}

uint16_t HttpServer::port() const {
  error_code ignored;
  return impl_->acceptor.local_endpoint(ignored).port();
}

void HttpServer::run(HttpHandler handler, bool on_signals) {
  impl_->handler = std::move(handler);
  impl_->context.handler = &impl_->handler;
  if (on_signals) {
    error_code ignored;
    impl_->signals.add(SIGTERM, ignored);
    impl_->signals.add(SIGINT, ignored);
    impl_->wait_for_signal();
  }
  asio::co_spawn(impl_->io, impl_->accept_loop(), asio::detached);
  for (bool done = false; !done;) {
    try {
      impl_->io.run();
      done = true;
    } catch (const std::exception& e) {
      log(LogLevel::kError, std::string("server: ") + e.what());
    }
  }
}

void HttpServer::stop() {
  asio::post(impl_->io, [impl = impl_.get()] { impl->begin_drain(); });
}

bool HttpServer::aborting() const {
  return impl_->context.aborting;
}
int HttpServer::num_connections() const {
  return impl_->context.num_connections;
}

}  // namespace ikv
