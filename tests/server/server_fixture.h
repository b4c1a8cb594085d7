// A server on a fake engine, and the simplest HTTP client that tests need.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "server/http_server.h"
#include "server/service.h"
#include "server/testing/fake_engine.h"

namespace ikv {

/// A TCP connection to 127.0.0.1. Reads time out after 10 s.
class TestClient {
 public:
  explicit TestClient(uint16_t port, int receive_buffer_bytes = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const timeval timeout{10, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
    if (receive_buffer_bytes > 0) {
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~TestClient() { close(); }
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  bool connected() const { return connected_; }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t size = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (size <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(size));
    }
    return true;
  }
  /// What came, until `end` is in it, the peer closed or nothing came for 10 s.
  std::string read_until(std::string_view end) {
    std::string text;
    char buffer[4096];
    while (text.find(end) == std::string::npos) {
      const ssize_t size = ::recv(fd_, buffer, sizeof buffer, 0);
      if (size <= 0) break;
      text.append(buffer, static_cast<size_t>(size));
    }
    return text;
  }
  std::string read_all() { return read_until(std::string_view("\0never\0", 7)); }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

/// Starts the server on a free port; stops it at the end.
class ServerTest : public ::testing::Test {
 protected:
  void start(ServerConfig config = {}) {
    config.port = 0;
    auto created = HttpServer::create(config);
    ASSERT_TRUE(created.ok()) << created.error().message;
    server_ = std::move(created).value();
    service_ = std::make_unique<Service>(engine_, config, *server_);
    port_ = server_->port();
    thread_ = std::thread([this] {
      server_->run([this](HttpExchange& exchange) { return service_->handle(exchange); }, false);
    });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    server_->stop();
    server_->stop();  // the second time at once
    thread_.join();
  }

  /// One request on a connection of its own; the whole response.
  std::string ask(const std::string& method, const std::string& path, const std::string& body = "",
                  const std::string& headers = "") {
    TestClient client(port_);
    client.send(request_text(method, path, body, headers + "Connection: close\r\n"));
    return client.read_all();
  }
  static std::string request_text(const std::string& method, const std::string& path,
                                  const std::string& body, const std::string& headers = "") {
    return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers +
           "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static int status_of(const std::string& response) {
    return response.size() > 12 ? std::atoi(response.c_str() + 9) : 0;
  }
  static Json body_of(const std::string& response) {
    const size_t begin = response.find("\r\n\r\n");
    if (begin == std::string::npos) return {};
    return Json::parse(response.substr(begin + 4), nullptr, false);
  }
  /// True if `condition` came true within five seconds.
  template <typename Condition>
  static bool eventually(Condition condition) {
    for (int i = 0; i < 500; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  FakeEngine engine_;
  std::unique_ptr<HttpServer> server_;
  std::unique_ptr<Service> service_;
  uint16_t port_ = 0;
  std::thread thread_;
};

inline constexpr const char* kHello = R"({"messages":[{"role":"user","content":"hi"}]})";
inline constexpr const char* kHelloStream =
    R"({"stream":true,"messages":[{"role":"user","content":"hi"}]})";

}  // namespace ikv
