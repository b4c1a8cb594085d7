#include "pruning/policy.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ikv {
namespace {

Status check_input(const PolicyConfig& config, const PolicyInput& input) {
  const size_t n = input.mass.size();
  if (input.num_tokens.size() != n || (!input.pinned.empty() && input.pinned.size() != n) ||
      (!input.kept_before.empty() && input.kept_before.size() != n)) {
    return invalid_argument("pruning: the arrays of masses, sizes and pins differ in length");
  }
  if (config.kind == PolicyKind::kLayered && config.inner == PolicyKind::kLayered) {
    return invalid_argument("pruning: the layered policy cannot contain itself");
  }
  if (!(config.mass >= 0.0f && config.mass <= 1.0f)) {
    return invalid_argument("pruning: the mass to hold must be within 0..1");
  }
  if (!(config.hysteresis >= 1.0f)) {
    return invalid_argument("pruning: the hysteresis factor must be at least 1");
  }
  return {};
}

// State of one run: who is kept so far, and what is left of the budget.
struct Run {
  const PolicyInput& input;
  PolicyResult result;
  int64_t budget_left = 0;

  void keep(size_t unit, KeepReason reason) {
    result.reason[unit] = reason;
    result.kept_tokens += input.num_tokens[unit];
    budget_left -= input.num_tokens[unit];
  }
  bool kept(size_t unit) const { return result.reason[unit] != KeepReason::kPruned; }
};

Status keep_pins(Run& run) {
  if (run.input.pinned.empty()) return {};
  int64_t pinned_tokens = 0;
  for (size_t i = 0; i < run.input.pinned.size(); ++i) {
    if (run.input.pinned[i] != 0) pinned_tokens += run.input.num_tokens[i];
  }
  if (pinned_tokens > run.input.budget_tokens) {
    return invalid_argument("pruning: the pins alone hold " + std::to_string(pinned_tokens) +
                            " tokens, more than the budget of " +
                            std::to_string(run.input.budget_tokens) +
                            "; unpin something or raise the budget");
  }
  for (size_t i = 0; i < run.input.pinned.size(); ++i) {
    if (run.input.pinned[i] != 0) run.keep(i, KeepReason::kPin);
  }
  return {};
}

void keep_recent(Run& run, int32_t recent_tokens) {
  int64_t window = recent_tokens;
  for (size_t i = run.input.mass.size(); i-- > 0 && window > 0;) {
    window -= run.input.num_tokens[i];
    if (!run.kept(i) && run.input.num_tokens[i] <= run.budget_left)
      run.keep(i, KeepReason::kRecent);
  }
}

// Mass per token with the hysteresis bonus: what decides who goes first.
std::vector<float> densities(const PolicyConfig& config, const PolicyInput& input) {
  std::vector<float> density(input.mass.size());
  for (size_t i = 0; i < density.size(); ++i) {
    // A NaN score is treated as no mass: it must not break the order.
    const float mass = input.mass[i] > 0.0f ? input.mass[i] : 0.0f;
    density[i] = mass / static_cast<float>(std::max(1, input.num_tokens[i]));
    if (!input.kept_before.empty() && input.kept_before[i] != 0) density[i] *= config.hysteresis;
  }
  return density;
}

float threshold_of(const PolicyConfig& config, const std::vector<float>& density) {
  if (density.empty()) return 0.0f;
  const double n = static_cast<double>(density.size());
  const double mean = std::accumulate(density.begin(), density.end(), 0.0) / n;
  if (config.adaptive < 0.0f) return static_cast<float>(config.threshold * mean);
  double squares = 0.0;
  for (const float d : density) squares += (d - mean) * (d - mean);
  return static_cast<float>(mean + config.adaptive * std::sqrt(squares / n));
}

void keep_by_score(Run& run, const PolicyConfig& config, PolicyKind kind, double total_mass) {
  const std::vector<float> density = densities(config, run.input);
  const float threshold = kind == PolicyKind::kThreshold ? threshold_of(config, density) : -1.0f;
  std::vector<uint32_t> order(density.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return density[a] != density[b] ? density[a] > density[b] : a > b;
  });
  double held = 0.0;
  for (size_t i = 0; i < density.size(); ++i) {
    if (run.kept(i)) held += run.input.mass[i];
  }
  for (const uint32_t i : order) {
    if (run.kept(i)) continue;
    if (kind == PolicyKind::kThreshold && density[i] < threshold) break;
    if (kind == PolicyKind::kMass && held >= config.mass * total_mass) break;
    if (run.input.num_tokens[i] > run.budget_left) continue;  // a smaller one may still fit
    const bool before = !run.input.kept_before.empty() && run.input.kept_before[i] != 0;
    run.keep(i, before && config.hysteresis > 1.0f ? KeepReason::kHysteresis : KeepReason::kScore);
    held += run.input.mass[i];
  }
}

}  // namespace

std::string_view keep_reason_name(KeepReason reason) {
  switch (reason) {
    case KeepReason::kPruned:
      return "pruned";
    case KeepReason::kPin:
      return "pin";
    case KeepReason::kRecent:
      return "recent";
    case KeepReason::kScore:
      return "score";
    case KeepReason::kHysteresis:
      return "hysteresis";
  }
  return "?";
}

Result<PolicyResult> run_policy(const PolicyConfig& config, const PolicyInput& input) {
  IKV_RETURN_IF_ERROR(check_input(config, input));
  Run run{input, {}, input.budget_tokens};
  run.result.reason.assign(input.mass.size(), KeepReason::kPruned);
  double total_mass = 0.0;
  for (const float m : input.mass) total_mass += m > 0.0f ? m : 0.0f;
  IKV_RETURN_IF_ERROR(keep_pins(run));
  const bool layered = config.kind == PolicyKind::kLayered;
  if (layered) keep_recent(run, config.recent_tokens);
  keep_by_score(run, config, layered ? config.inner : config.kind, total_mass);
  double kept_mass = 0.0;
  for (size_t i = 0; i < input.mass.size(); ++i) {
    if (run.kept(i) && input.mass[i] > 0.0f) kept_mass += input.mass[i];
  }
  run.result.kept_mass = total_mass > 0.0 ? static_cast<float>(kept_mass / total_mass) : 1.0f;
  return std::move(run.result);
}

}  // namespace ikv
