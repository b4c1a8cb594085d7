// Flags that several sub-commands share: how the engine is set up, how a reply is made.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "intentkv/config.h"

namespace ikv {

/// Where the flags of one sub-command land; checked while the command line is parsed.
struct EngineOptions {
  EngineConfig config;
  std::string kv_memory;

  /// The finished configuration. Call it after parsing.
  EngineConfig resolve() const;
};

/// Adds --model, --ctx-size, --threads, --cache-type-k/v, --kv-memory.
void add_engine_options(CLI::App& command, EngineOptions& options);

/// Where audits of replies go.
struct AuditOptions {
  std::string path;  ///< empty: nowhere
  bool with_text = false;
};

/// Adds --audit and --audit-text.
void add_audit_options(CLI::App& command, AuditOptions& options);

/// As EngineOptions, for a reply.
struct GenerationOptions {
  GenerationConfig config;
  std::vector<std::string> logit_bias;
  int64_t seed = -1;

  /// The finished configuration. Call it after parsing.
  GenerationConfig resolve() const;
};

/// Adds -n and the sampling flags, with llama.cpp's names.
void add_generation_options(CLI::App& command, GenerationOptions& options);

}  // namespace ikv
