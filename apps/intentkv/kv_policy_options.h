// Flags of the cache policy, shared by chat, generate, serve and eval.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "base/result.h"
#include "engine/kv_policy.h"

namespace ikv {

/// Where the flags land, and how a JSON object with the same names is read.
struct KvPolicyOptions {
  std::string attend = "all";
  int attend_min = 512;
  int attend_recent = 128;
  int attend_sink = 32;
  std::string resident = "all";
  std::string scorer = "code";
  std::string page_scorer = "exact";
  std::string intent = "span";
  double candidates = 2.0;
  bool force_selection = false;

  /// The policy; errors name the flag.
  Result<KvPolicy> resolve() const;
};

/// Adds --kv-attend, --kv-attend-min, --kv-resident and those for comparisons.
void add_kv_policy_options(CLI::App& command, KvPolicyOptions& options);

}  // namespace ikv
