// How the HTTP server is set up.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "intentkv/audit.h"
#include "intentkv/config.h"

namespace ikv {

/// Where it listens, whom it lets in, and its limits. Defaults suit one machine's own agents.
struct ServerConfig {
  std::string host = "127.0.0.1";         ///< an address, not a name
  uint16_t port = 8080;                   ///< 0: any free one
  std::string model_alias;                ///< the model's name in replies; empty: the file's own
  std::vector<std::string> api_keys;      ///< empty: everybody who can connect is let in
  std::vector<std::string> cors_origins;  ///< origins of foreign web pages; "*": all
  std::string tls_cert_file;              ///< PEM; both or neither
  std::string tls_key_file;
  GenerationConfig generation;  ///< for requests that do not say
  std::function<nlohmann::ordered_json(const TurnAudit&)> write_audit;  ///< for intentkv.explain
  int num_slots = 16;  ///< as /props and /slots report: EngineConfig::max_parallel

  int max_connections = 512;
  uint64_t max_body_bytes = 32u << 20;
  uint64_t max_all_bodies_bytes = 256u << 20;  ///< bodies being held at once
  uint32_t max_header_bytes = 16u << 10;
  int max_headers = 100;
  int worker_threads = 2;                     ///< parse and tokenise
  std::chrono::seconds idle_timeout{75};      ///< between requests of a connection
  std::chrono::seconds request_timeout{60};   ///< from a request's first byte to its last
  std::chrono::seconds write_timeout{30};     ///< a client that takes nothing
  std::chrono::seconds stall_timeout{120};    ///< /health fails when no step ends in so long
  std::chrono::seconds drain_timeout{30};     ///< running replies may take so long after stop()
  std::chrono::milliseconds heartbeat{5000};  ///< SSE comments while nothing else is sent
};

}  // namespace ikv
