#include "pruning/budget.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

namespace ikv {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

Error budget_error(std::string_view text, const std::string& what) {
  return invalid_argument("budget '" + std::string(text.substr(0, 64)) + "': " + what);
}

Result<float> parse_share(std::string_view text, std::string_view number) {
  const auto percent = parse_number(trim(number));
  if (!percent) return budget_error(text, "a number must stand before %");
  if (*percent <= 0) return budget_error(text, "must be more than 0 %");
  if (*percent > 100) return budget_error(text, "must not be more than 100 %");
  return static_cast<float>(*percent / 100);
}

std::string percent_text(float share) {
  char text[32];
  std::snprintf(text, sizeof text, "%g%%", static_cast<double>(share) * 100);
  return text;
}

}  // namespace

int32_t attend_tokens(const AttendBudget& budget, int32_t num_cached) {
  double wanted = num_cached;
  if (budget.kind == AttendBudget::Kind::kShare || budget.kind == AttendBudget::Kind::kMass) {
    wanted = std::ceil(static_cast<double>(budget.share) * num_cached);
  } else if (budget.kind == AttendBudget::Kind::kTokens) {
    wanted = budget.tokens;
  }
  wanted = std::max(wanted, static_cast<double>(budget.min_tokens));
  return static_cast<int32_t>(std::min(wanted, static_cast<double>(num_cached)));
}

Result<AttendBudget> parse_attend_budget(std::string_view text, const AttendBudget& defaults) {
  AttendBudget budget = defaults;
  const std::string_view trimmed = trim(text);
  if (trimmed == "all") {
    budget.kind = AttendBudget::Kind::kAll;
    budget.share = 1.0f;
    return budget;
  }
  constexpr std::string_view kMassPrefix = "mass=";
  if (trimmed.starts_with(kMassPrefix)) {
    const auto mass = parse_number(trimmed.substr(kMassPrefix.size()));
    if (!mass || *mass <= 0 || *mass > 1) {
      return budget_error(text, "mass must be more than 0 and at most 1");
    }
    budget.kind = AttendBudget::Kind::kMass;
    budget.mass = static_cast<float>(*mass);
    if (budget.share >= 1.0f) budget.share = 0.5f;
    return budget;
  }
  if (trimmed.ends_with('%')) {
    IKV_ASSIGN_OR_RETURN(budget.share, parse_share(text, trimmed.substr(0, trimmed.size() - 1)));
    budget.kind = AttendBudget::Kind::kShare;
    return budget;
  }
  const auto tokens = parse_number(trimmed);
  if (!tokens || *tokens != std::floor(*tokens)) {
    return budget_error(text, "write a share (12%), a number of tokens (900) or mass=0.98");
  }
  if (*tokens <= 0 || *tokens > 1e9) return budget_error(text, "tokens must be 1 to 1e9");
  budget.kind = AttendBudget::Kind::kTokens;
  budget.tokens = static_cast<int32_t>(*tokens);
  return budget;
}

Status check_attend_budget(const AttendBudget& budget) {
  if (budget.min_tokens < 1 || budget.sink_tokens < 0 || budget.recent_tokens < 1) {
    return invalid_argument(
        "the attended floor and recent tokens must be at least 1, sink tokens at least 0");
  }
  const int64_t forced = int64_t{budget.sink_tokens} + budget.recent_tokens;
  if (forced <= budget.min_tokens) return {};
  return invalid_argument("the always-read " + std::to_string(forced) +
                          " tokens exceed the attended floor of " +
                          std::to_string(budget.min_tokens));
}

Result<ResidentBudget> parse_resident_budget(std::string_view text) {
  ResidentBudget budget;
  const std::string_view trimmed = trim(text);
  if (trimmed == "all") return budget;
  if (trimmed.ends_with('%')) {
    IKV_ASSIGN_OR_RETURN(budget.share, parse_share(text, trimmed.substr(0, trimmed.size() - 1)));
    budget.kind = ResidentBudget::Kind::kShare;
    return budget;
  }
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0},
                             {"kB", 1e3},     {"MB", 1e6},        {"GB", 1e9},
                             {"B", 1}};
  for (const Unit& unit : kUnits) {
    if (!trimmed.ends_with(unit.name)) continue;
    const auto number = parse_number(trim(trimmed.substr(0, trimmed.size() - unit.name.size())));
    if (!number || *number <= 0 || *number * unit.bytes > 1e15) {
      return budget_error(text, "bytes must be a number between 0 and 1e15");
    }
    budget.kind = ResidentBudget::Kind::kBytes;
    budget.bytes = static_cast<uint64_t>(*number * unit.bytes);
    return budget;
  }
  return budget_error(text, "write a share (25%) or bytes with a unit (256MiB)");
}

std::string to_string(const AttendBudget& budget) {
  switch (budget.kind) {
    case AttendBudget::Kind::kAll:
      return "all";
    case AttendBudget::Kind::kShare:
      return percent_text(budget.share);
    case AttendBudget::Kind::kTokens:
      return std::to_string(budget.tokens);
    case AttendBudget::Kind::kMass: {
      char text[32];
      std::snprintf(text, sizeof text, "mass=%g", static_cast<double>(budget.mass));
      return text;
    }
  }
  return "?";
}

std::string to_string(const ResidentBudget& budget) {
  switch (budget.kind) {
    case ResidentBudget::Kind::kAll:
      return "all";
    case ResidentBudget::Kind::kShare:
      return percent_text(budget.share);
    case ResidentBudget::Kind::kBytes:
      return std::to_string(budget.bytes) + "B";
  }
  return "?";
}

}  // namespace ikv
