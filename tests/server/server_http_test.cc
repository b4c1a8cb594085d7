// Limits, timeouts and lifetimes of the HTTP server, through real sockets.
#include <string>
#include <vector>

#include "server_fixture.h"

namespace ikv {
namespace {

TEST_F(ServerTest, HealthAndUnknownUrls) {
  start();
  EXPECT_EQ(status_of(ask("GET", "/health")), 200);
  EXPECT_EQ(status_of(ask("HEAD", "/health")), 200);
  const std::string unknown = ask("GET", "/nope");
  EXPECT_EQ(status_of(unknown), 404);
  EXPECT_EQ(body_of(unknown)["error"]["code"], "unknown_url");
  EXPECT_EQ(status_of(ask("GET", "/v1/chat/completions")), 405);
}

TEST_F(ServerTest, KeepAliveServesSeveralRequestsAndPipelinedOnes) {
  start();
  TestClient client(port_);
  ASSERT_TRUE(client.send(request_text("GET", "/health", "") + request_text("GET", "/props", "")));
  std::string text = client.read_until("total_slots");
  EXPECT_NE(text.find("\"status\":\"ok\""), std::string::npos);
  EXPECT_NE(text.find("total_slots"), std::string::npos);
  ASSERT_TRUE(client.send(request_text("GET", "/health", "")));
  EXPECT_NE(client.read_until("\"ok\"").find("200 OK"), std::string::npos);
}

TEST_F(ServerTest, BodiesAboveTheLimitAreRefusedWithLengthAndChunked) {
  ServerConfig config;
  config.max_body_bytes = 1000;
  start(config);
  EXPECT_EQ(status_of(ask("POST", "/v1/completions", std::string(2000, ' '))), 413);
  TestClient client(port_);
  client.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 3; ++i) client.send("1f4\r\n" + std::string(500, ' ') + "\r\n");
  client.send("0\r\n\r\n");
  EXPECT_EQ(status_of(client.read_all()), 413);
  EXPECT_EQ(status_of(ask("GET", "/health")), 200);
}

TEST_F(ServerTest, HeadersAreLimitedInSizeAndNumber) {
  start();
  EXPECT_EQ(status_of(ask("GET", "/health", "", "X-Big: " + std::string(20000, 'a') + "\r\n")),
            431);
  std::string many;
  for (int i = 0; i < 150; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
  EXPECT_EQ(status_of(ask("GET", "/health", "", many)), 431);
}

TEST_F(ServerTest, MalformedRequestsGetA400AndTheServerLives) {
  start();
  const std::vector<std::string> broken = {
      "GARBAGE\r\n\r\n",
      "GET / HTTP/9.9\r\n\r\n",
      "POST /v1/completions HTTP/1.1\r\n: x\r\n\r\n",
      "POST / HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
      "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
      "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
      std::string("\0\1\2\3\xff\xfe\r\n\r\n", 10)};
  for (const std::string& bytes : broken) {
    TestClient client(port_);
    client.send(bytes);
    const int status = status_of(client.read_all());
    EXPECT_TRUE(status >= 400 && status < 600) << bytes << " gave " << status;
  }
  EXPECT_EQ(status_of(ask("GET", "/health")), 200);
}

TEST_F(ServerTest, ConnectionsAboveTheLimitGet503) {
  ServerConfig config;
  config.max_connections = 2;
  start(config);
  TestClient first(port_), second(port_);
  first.send(request_text("GET", "/health", ""));
  second.send(request_text("GET", "/health", ""));
  ASSERT_NE(first.read_until("\"ok\""), "");
  ASSERT_NE(second.read_until("\"ok\""), "");
  EXPECT_EQ(status_of(ask("GET", "/health")), 503);
  first.close();
  EXPECT_TRUE(eventually([&] { return status_of(ask("GET", "/health")) == 200; }));
}

TEST_F(ServerTest, SlowRequestsAndIdleConnectionsTimeOut) {
  ServerConfig config;
  config.request_timeout = std::chrono::seconds(1);
  config.idle_timeout = std::chrono::seconds(1);
  start(config);
  TestClient idle(port_), slow(port_);
  slow.send("POST /v1/completions HTTP/1.1\r\nHost:");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(idle.read_all(), "");
  slow.read_all();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(ServerTest, ApiKeysAreAskedForAndBothHeadersWork) {
  ServerConfig config;
  config.api_keys = {"first-key", "second-key"};
  start(config);
  EXPECT_EQ(status_of(ask("GET", "/health")), 200);
  const std::string refused = ask("GET", "/v1/models");
  EXPECT_EQ(status_of(refused), 401);
  EXPECT_EQ(body_of(refused)["error"]["code"], "invalid_api_key");
  EXPECT_EQ(status_of(ask("GET", "/v1/models", "", "Authorization: Bearer first-kez\r\n")), 401);
  EXPECT_EQ(status_of(ask("GET", "/v1/models", "", "Authorization: Bearer second-key\r\n")), 200);
  EXPECT_EQ(status_of(ask("GET", "/v1/models", "", "x-api-key: first-key\r\n")), 200);
  EXPECT_EQ(status_of(ask("GET", "/secret-path")), 401);
}

TEST_F(ServerTest, ForeignWebPagesAreRefusedUnlessAllowed) {
  ServerConfig config;
  config.cors_origins = {"https://good.example"};
  start(config);
  EXPECT_EQ(status_of(ask("GET", "/v1/models", "", "Origin: https://evil.example\r\n")), 403);
  EXPECT_EQ(status_of(ask("GET", "/v1/models", "", "Origin: http://localhost\r\n")), 200);
  const std::string good = ask("GET", "/v1/models", "", "Origin: https://good.example\r\n");
  EXPECT_EQ(status_of(good), 200);
  EXPECT_NE(good.find("Access-Control-Allow-Origin: https://good.example"), std::string::npos);
  const std::string preflight =
      ask("OPTIONS", "/v1/chat/completions", "",
          "Origin: https://good.example\r\nAccess-Control-Request-Headers: x-thing\r\n");
  EXPECT_EQ(status_of(preflight), 204);
  EXPECT_NE(preflight.find("Access-Control-Allow-Headers: x-thing"), std::string::npos);
}

TEST_F(ServerTest, DrainLetsARunningReplyEnd) {
  start();
  FakeScript script;
  script.pieces = {"one ", "two ", "three"};
  script.delay_between_ms = 150;
  engine_.set_script(script);
  TestClient client(port_), idle(port_);
  client.send(request_text("POST", "/v1/chat/completions", kHelloStream));
  const std::string begin = client.read_until("one");
  server_->stop();
  EXPECT_NE((begin + client.read_until("[DONE]")).find("[DONE]"), std::string::npos);
  EXPECT_EQ(idle.read_all(), "");
  thread_.join();
  EXPECT_EQ(engine_.num_cancelled(), 0);
}

TEST_F(ServerTest, SecondStopEndsRunningRepliesWithAnError) {
  start();
  FakeScript script;
  script.delay_between_ms = 60'000;
  engine_.set_script(script);
  TestClient client(port_);
  client.send(request_text("POST", "/v1/chat/completions", kHelloStream));
  client.read_until("Hello");
  server_->stop();
  server_->stop();
  EXPECT_NE(client.read_all().find("shutting_down"), std::string::npos);
  thread_.join();
  EXPECT_TRUE(eventually([&] { return engine_.num_running() == 0; }));
}

TEST_F(ServerTest, ManyConnectionsDoNotSlowHealth) {
  start();
  FakeScript script;
  script.pieces.assign(400, "token ");
  script.delay_between_ms = 5;
  engine_.set_script(script);
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 64; ++i) clients.push_back(std::make_unique<TestClient>(port_));
  for (int i = 0; i < 64; ++i) {
    clients.push_back(std::make_unique<TestClient>(port_));
    clients.back()->send(request_text("POST", "/v1/chat/completions", kHelloStream));
  }
  for (size_t i = 64; i < clients.size(); ++i) clients[i]->read_until("token");
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(status_of(ask("GET", "/health")), 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
  clients.clear();
  EXPECT_TRUE(eventually([&] { return engine_.num_running() == 0; }));
  EXPECT_EQ(engine_.num_cancelled(), 64);
}

}  // namespace
}  // namespace ikv
