#include "cmd_serve.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "audit_json.h"
#include "base/log.h"
#include "cli_error.h"
#include "engine_options.h"
#include "flag_checks.h"
#include "server/access.h"
#include "server/http_server.h"
#include "server/service.h"

namespace ikv {
namespace {

struct ServeOptions {
  EngineOptions engine;
  GenerationOptions generation;
  ServerConfig server;
  std::string api_key_file;
  std::string max_body;
  int drain_s = 30;
  int heartbeat_s = 5;
  int request_timeout_s = 60;
};

// IPv6 addresses stand in brackets in URLs.
std::string url_of(const ServerConfig& config, uint16_t port) {
  const bool v6 = config.host.find(':') != std::string::npos;
  return std::string(config.tls_cert_file.empty() ? "http://" : "https://") + (v6 ? "[" : "") +
         config.host + (v6 ? "]:" : ":") + std::to_string(port);
}

Status complete(ServeOptions& options, const EngineConfig& engine) {
  ServerConfig& server = options.server;
  if (!options.api_key_file.empty()) {
    Result<std::vector<std::string>> keys = read_api_key_file(options.api_key_file);
    if (!keys.ok()) return keys.error();
    for (std::string& key : keys.value()) server.api_keys.push_back(std::move(key));
  }
  // A key on the command line is seen by everybody who lists processes.
  if (const char* key = std::getenv("INTENTKV_API_KEY"); key != nullptr && *key != '\0') {
    server.api_keys.emplace_back(key);
  }
  for (const std::string& key : server.api_keys) {
    if (key.empty()) return invalid_argument("--api-key must not be empty");
  }
  if (!options.max_body.empty()) {
    Result<uint64_t> bytes = parse_bytes(options.max_body);
    if (!bytes.ok()) return bytes.error();
    server.max_body_bytes = bytes.value();
    server.max_all_bodies_bytes = std::max(server.max_all_bodies_bytes, 2 * bytes.value());
  }
  server.drain_timeout = std::chrono::seconds(options.drain_s);
  server.heartbeat = std::chrono::seconds(options.heartbeat_s);
  server.request_timeout = std::chrono::seconds(options.request_timeout_s);
  server.generation = options.generation.resolve();
  server.num_slots = engine.max_parallel;
  server.write_audit = [](const TurnAudit& audit) { return audit_to_json(audit, {}); };
  return {};
}

int run_serve(ServeOptions& options) {
  if (log_level() == LogLevel::kWarning) set_log_level(LogLevel::kInfo);
  const EngineConfig config = options.engine.resolve();
  const Status completed = complete(options, config);
  if (!completed.ok()) return report_failure(completed.error());
  // The port first: a model takes long to load, and a port in use is told at once.
  Result<std::unique_ptr<HttpServer>> server = HttpServer::create(options.server);
  if (!server.ok()) return report_failure(server.error());
  Result<std::unique_ptr<Engine>> engine = Engine::create(config);
  if (!engine.ok()) return report_failure(engine.error());
  {
    Service service(**engine, options.server, **server);
    const std::string url = url_of(options.server, (*server)->port());
    std::printf("intentkv: %s at %s/v1 (OpenAI-compatible); Ctrl-C ends it\n",
                (*engine)->model_info().name.c_str(), url.c_str());
    std::fflush(stdout);
    (*server)->run([&service](HttpExchange& exchange) { return service.handle(exchange); }, true);
  }
  std::printf("intentkv: stopped\n");
  return kExitOk;
}

void add_server_flags(CLI::App& command, ServeOptions& options) {
  ServerConfig& server = options.server;
  const char* group = "Server";
  command.add_option("--host", server.host, "Address to listen on; 0.0.0.0: all")
      ->type_name("IP")
      ->capture_default_str()
      ->group(group);
  command.add_option("--port", server.port, "0: any free port")
      ->check(integer_between(0, 65535))
      ->type_name("N")
      ->capture_default_str()
      ->group(group);
  command.add_option("-a,--alias", server.model_alias, "The model's name in replies")
      ->type_name("NAME")
      ->group(group);
  command
      .add_option("--api-key", server.api_keys,
                  "A key that clients must send; may be repeated; also $INTENTKV_API_KEY")
      ->allow_extra_args(false)
      ->type_name("KEY")
      ->group(group);
  command.add_option("--api-key-file", options.api_key_file, "More keys, one a line")
      ->type_name("FILE")
      ->group(group);
  command
      .add_option("--cors-origin", server.cors_origins,
                  "Web origin whose pages may call, such as http://localhost:3000; '*': all; "
                  "may be repeated")
      ->allow_extra_args(false)
      ->type_name("ORIGIN")
      ->group(group);
  command.add_option("--ssl-cert-file", server.tls_cert_file, "Certificate chain, PEM: serve TLS")
      ->type_name("FILE")
      ->group(group);
  command.add_option("--ssl-key-file", server.tls_key_file, "Its private key, PEM")
      ->type_name("FILE")
      ->group(group);
}

void add_limit_flags(CLI::App& command, ServeOptions& options) {
  const char* group = "Limits";
  const auto integer = [&](const char* name, int& value, int64_t low, int64_t high,
                           const char* help) {
    command.add_option(name, value, help)
        ->check(integer_between(low, high))
        ->type_name("N")
        ->capture_default_str()
        ->group(group);
  };
  integer("--parallel", options.engine.config.max_parallel, 1, 1024,
          "Most replies that run at once; more wait");
  integer("--max-queue", options.engine.config.max_queue, 0, 1 << 20,
          "Most replies that wait; more get 503");
  integer("--max-sessions", options.engine.config.max_sessions, 1, 1 << 20, "Sessions remembered");
  integer("--max-connections", options.server.max_connections, 1, 1 << 16, "Open connections");
  integer("--drain-timeout", options.drain_s, 0, 3600, "Seconds that replies get after SIGTERM");
  integer("--heartbeat", options.heartbeat_s, 1, 3600,
          "Seconds between comments in a silent stream");
  integer("--request-timeout", options.request_timeout_s, 1, 3600,
          "Seconds that a client has to send its request");
  command.add_option("--max-body", options.max_body, "Largest request body; default: 32MiB")
      ->check(byte_size())
      ->type_name("SIZE")
      ->group(group);
}

}  // namespace

void add_serve_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "Serve a model to OpenAI-compatible clients");
  command->footer(
      "Examples:\n"
      "  intentkv serve -m model.gguf --port 8080\n"
      "  intentkv serve -m model.gguf --host 0.0.0.0 --api-key-file keys.txt --kv-policy intent\n"
      "  curl http://127.0.0.1:8080/v1/chat/completions -d "
      "'{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'");
  add_server_flags(*command, *options);
  add_limit_flags(*command, *options);
  add_engine_options(*command, options->engine);
  add_generation_options(*command, options->generation);
  command->callback([options, &exit_code] { exit_code = run_serve(*options); });
}

}  // namespace ikv
