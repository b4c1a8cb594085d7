#include "server/http_connection.h"

#include <poll.h>

#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <optional>
#include <utility>

#include "server/api_error.h"

namespace ikv {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

HttpResponse refusal(int status, std::string code, std::string message) {
  ApiError error;
  error.status = status;
  if (status >= 500) error.type = "server_error";
  error.code = std::move(code);
  error.message = std::move(message);
  HttpResponse response;
  response.status = status;
  response.body = dump_json(openai_error_json(error));
  return response;
}

template <typename Stream>
class Connection : public HttpExchange, public ConnectionControl {
 public:
  Connection(Stream stream, ConnectionContext& context)
      : stream_(std::move(stream)), context_(context), config_(*context.config) {}
  ~Connection() override { release_body(); }

  asio::awaitable<void> serve() {
    while (!context_.draining && co_await serve_one()) {
    }
    error_code ignored;
    socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  }

  Stream& stream() { return stream_; }

  // --- ConnectionControl ---
  bool idle() const override { return idle_; }
  void abort() override {
    beast::get_lowest_layer(stream_).cancel();
    broken_ = true;
  }

  // --- HttpExchange ---
  HttpRequest& request() override { return request_; }
  HttpHeaders& common_headers() override { return common_headers_; }

  asio::awaitable<bool> respond(HttpResponse response) override {
    http::response<http::string_body> message(static_cast<http::status>(response.status), version_);
    set_headers(message, response.headers);
    message.set(http::field::content_type, response.content_type);
    if (response.status == 204) {
      message.content_length(boost::none);
    } else {
      message.body() = std::move(response.body);
      message.prepare_payload();
    }
    start_timer(config_.write_timeout);
    error_code error;
    if (request_.method == "HEAD") {
      http::response_serializer<http::string_body> serializer(message);
      co_await http::async_write_header(stream_, serializer, awaitable(error));
    } else {
      co_await http::async_write(stream_, message, awaitable(error));
    }
    answered_ = true;
    co_return note(error);
  }

  asio::awaitable<bool> start_stream(HttpHeaders headers) override {
    http::response<http::empty_body> message(http::status::ok, version_);
    set_headers(message, headers);
    // HTTP/1.0 knows no chunks: the end of the connection ends the reply.
    chunked_ = version_ == 11;
    if (chunked_) {
      message.chunked(true);
    } else {
      keep_alive_ = false;
      message.keep_alive(false);
    }
    http::response_serializer<http::empty_body> serializer(message);
    start_timer(config_.write_timeout);
    error_code error;
    co_await http::async_write_header(stream_, serializer, awaitable(error));
    answered_ = true;
    co_return note(error);
  }

  asio::awaitable<bool> write_stream(std::string text) override {
    if (broken_) co_return false;
    if (text.empty()) co_return true;
    start_timer(config_.write_timeout);
    error_code error;
    if (chunked_) {
      co_await asio::async_write(stream_, http::make_chunk(asio::buffer(text)), awaitable(error));
    } else {
      co_await asio::async_write(stream_, asio::buffer(text), awaitable(error));
    }
    co_return note(error);
  }

  asio::awaitable<bool> finish_stream() override {
    if (broken_) co_return false;
    if (!chunked_) co_return true;
    start_timer(config_.write_timeout);
    error_code error;
    co_await asio::async_write(stream_, http::make_chunk_last(), awaitable(error));
    co_return note(error);
  }

  bool client_gone() override {
    // While it is asked for this, a reply is in the making; the handler lets go of a large body.
    if (request_.body.empty()) release_body();
    pollfd poll_fd{socket().native_handle(), POLLRDHUP, 0};
    if (::poll(&poll_fd, 1, 0) > 0) broken_ = true;
    return broken_;
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  auto awaitable(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }
  auto& socket() { return beast::get_lowest_layer(stream_).socket(); }

  void start_timer(std::chrono::seconds timeout) {
    beast::get_lowest_layer(stream_).expires_after(timeout);
  }

  bool note(const error_code& error) {
    if (error) broken_ = true;
    return !broken_;
  }

  template <typename MessageType>
  void set_headers(MessageType& message, const HttpHeaders& headers) {
    if (context_.draining) keep_alive_ = false;
    message.keep_alive(keep_alive_);
    for (const auto& [name, value] : common_headers_) message.set(name, value);
    for (const auto& [name, value] : headers) message.set(name, value);
  }

  // One request with its answer. False: the connection is to be closed.
  asio::awaitable<bool> serve_one() {
    release_body();
    Parser parser;
    parser.header_limit(config_.max_header_bytes);
    parser.body_limit(config_.max_body_bytes);
    answered_ = false;
    std::optional<HttpResponse> refused = co_await read_request(parser);
    if (broken_) co_return false;
    if (refused) {
      keep_alive_ = false;
      co_await respond(std::move(*refused));
      co_await discard_rest();
      co_return false;
    }
    start_timer(std::chrono::hours(24));
    co_await (*context_.handler)(*this);
    if (!answered_ && !broken_) {
      HttpResponse missing = refusal(500, "internal_error", "the request was not answered");
      co_await respond(std::move(missing));
    }
    co_return !broken_ && keep_alive_;
  }

  asio::awaitable<std::optional<HttpResponse>> read_request(Parser& parser) {
    error_code error;
    version_ = 11;
    request_ = {};
    common_headers_.clear();
    idle_ = buffer_.size() == 0;
    if (idle_) {
      // The idle timeout holds until the first byte, the request's until its last.
      start_timer(config_.idle_timeout);
      const size_t size = co_await stream_.async_read_some(buffer_.prepare(4096), awaitable(error));
      buffer_.commit(size);
      idle_ = false;
      if (!note(error)) co_return std::nullopt;
    }
    start_timer(config_.request_timeout);
    co_await http::async_read_header(stream_, buffer_, parser, awaitable(error));
    if (error) co_return explain(error);
    if (std::optional<HttpResponse> refused = take_header(parser)) co_return refused;
    if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
      http::response<http::empty_body> go_on(http::status::continue_, 11);
      co_await http::async_write(stream_, go_on, awaitable(error));
      if (!note(error)) co_return std::nullopt;
    }
    while (!parser.is_done()) {
      co_await http::async_read_some(stream_, buffer_, parser, awaitable(error));
      if (error) co_return explain(error);
      if (!charge_body(parser.get().body().size())) {
        co_return refusal(503, "server_busy",
                          "too many bytes of requests are being read; try again");
      }
    }
    request_.body = std::move(parser.get().body());
    co_return std::nullopt;
  }

  std::optional<HttpResponse> take_header(const Parser& parser) {
    const auto& message = parser.get();
    version_ = message.version();
    if (version_ != 10 && version_ != 11) {
      version_ = 11;
      return refusal(505, "http_version", "only HTTP/1.0 and HTTP/1.1 are supported");
    }
    keep_alive_ = message.keep_alive();
    request_.method = std::string(message.method_string());
    const std::string_view target(message.target().data(), message.target().size());
    request_.path = percent_decode(target.substr(0, target.find('?')));
    int count = 0;
    for (const auto& field : message) {
      const std::string_view name(field.name_string().data(), field.name_string().size());
      request_.headers.try_emplace(lower(name), field.value().data(), field.value().size());
      if (++count > config_.max_headers) {
        return refusal(
            431, "too_many_headers",
            "the request has more than " + std::to_string(config_.max_headers) + " headers");
      }
    }
    const auto length = parser.content_length();
    if (length && *length > config_.max_body_bytes) return too_large();
    return std::nullopt;
  }

  HttpResponse too_large() const {
    return refusal(413, "request_too_large",
                   "the body has more than " + std::to_string(config_.max_body_bytes) + " bytes");
  }

  // What to say of a request that could not be read; nothing if nobody listens.
  std::optional<HttpResponse> explain(const error_code& error) {
    if (error == http::error::body_limit) return too_large();
    if (error == http::error::header_limit) {
      return refusal(431, "headers_too_large",
                     "the request's header has more than " +
                         std::to_string(config_.max_header_bytes) + " bytes");
    }
    if (error.category() == http::make_error_code(http::error::end_of_stream).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message) {
      return refusal(400, "malformed_request", "malformed HTTP request: " + error.message());
    }
    broken_ = true;
    return std::nullopt;
  }

  // A client that is still sending would see a reset instead of the refusal; a moment of reading
  // lets it see the answer.
  asio::awaitable<void> discard_rest() {
    error_code error;
    socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
    start_timer(std::chrono::seconds(2));
    std::array<char, 16384> scratch{};
    size_t discarded = 0;
    while (!error && !broken_ && discarded < (64u << 20)) {
      discarded += co_await stream_.async_read_some(asio::buffer(scratch), awaitable(error));
    }
  }

  bool charge_body(size_t bytes) {
    context_.body_bytes += bytes - body_bytes_;
    body_bytes_ = bytes;
    return context_.body_bytes <= config_.max_all_bodies_bytes;
  }
  void release_body() {
    context_.body_bytes -= body_bytes_;
    body_bytes_ = 0;
  }

  Stream stream_;
  ConnectionContext& context_;
  const ServerConfig& config_;
  beast::flat_buffer buffer_;
  HttpRequest request_;
  HttpHeaders common_headers_;
  unsigned version_ = 11;
  uint64_t body_bytes_ = 0;
  bool keep_alive_ = true;
  bool chunked_ = true;
  bool answered_ = false;
  bool idle_ = true;
  bool broken_ = false;
};

}  // namespace

std::string percent_decode(std::string_view text) {
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && digit(text[i + 1]) >= 0 &&
        digit(text[i + 2]) >= 0) {
      result += static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2]));
      i += 2;
    } else {
      result += text[i];
    }
  }
  return result;
}

asio::awaitable<void> serve_connection(asio::ip::tcp::socket socket, ConnectionContext& context,
                                       std::function<void(ConnectionControl*)> started) {
  error_code ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (context.tls == nullptr) {
    Connection<beast::tcp_stream> connection(beast::tcp_stream(std::move(socket)), context);
    started(&connection);
    co_await connection.serve();
    started(nullptr);
    co_return;
  }
  using TlsStream = beast::ssl_stream<beast::tcp_stream>;
  Connection<TlsStream> connection(TlsStream(beast::tcp_stream(std::move(socket)), *context.tls),
                                   context);
  started(&connection);
  beast::get_lowest_layer(connection.stream()).expires_after(context.config->request_timeout);
  error_code error;
  co_await connection.stream().async_handshake(asio::ssl::stream_base::server,
                                               asio::redirect_error(asio::use_awaitable, error));
  if (!error) co_await connection.serve();
  started(nullptr);
}

asio::awaitable<void> refuse_connection(asio::ip::tcp::socket socket) {
  beast::tcp_stream stream(std::move(socket));
  stream.expires_after(std::chrono::seconds(2));
  const HttpResponse refused =
      refusal(503, "too_many_connections", "the server has too many connections; try again");
  http::response<http::string_body> message(http::status::service_unavailable, 11);
  message.set(http::field::content_type, refused.content_type);
  message.set(http::field::retry_after, "1");
  message.keep_alive(false);
  message.body() = refused.body;
  message.prepare_payload();
  error_code ignored;
  co_await http::async_write(stream, message, asio::redirect_error(asio::use_awaitable, ignored));
  stream.socket().shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  std::array<char, 1024> scratch{};
  while (!ignored) {
    co_await stream.async_read_some(asio::buffer(scratch),
                                    asio::redirect_error(asio::use_awaitable, ignored));
  }
}

}  // namespace ikv
