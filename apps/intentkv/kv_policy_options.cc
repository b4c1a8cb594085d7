#include "kv_policy_options.h"

#include <utility>

#include "flag_checks.h"

namespace ikv {
namespace {

template <typename T>
Result<T> name_flag(const char* flag, Result<T> result) {
  if (result.ok()) return result;
  return make_error(result.error().code, std::string(flag) + ": " + result.error().message);
}

}  // namespace

Result<KvPolicy> KvPolicyOptions::resolve() const {
  KvPolicy policy;
  AttendBudget defaults;
  defaults.min_tokens = attend_min;
  defaults.recent_tokens = attend_recent;
  defaults.sink_tokens = attend_sink;
  defaults.force_selection = force_selection;
  IKV_ASSIGN_OR_RETURN(policy.attend.budget,
                       name_flag("--kv-attend", parse_attend_budget(attend, defaults)));
  IKV_RETURN_IF_ERROR(check_attend_budget(policy.attend.budget));
  IKV_ASSIGN_OR_RETURN(policy.attend.scorer, name_flag("--kv-scorer", parse_token_scorer(scorer)));
  policy.attend.candidates = static_cast<float>(candidates);
  IKV_ASSIGN_OR_RETURN(policy.resident,
                       name_flag("--kv-resident", parse_resident_budget(resident)));
  const Status page_scorer_status = parse_page_scorer(page_scorer, policy.pages);
  if (!page_scorer_status.ok()) {
    return name_flag<KvPolicy>("--kv-page-scorer", page_scorer_status.error());
  }
  IKV_ASSIGN_OR_RETURN(policy.pages.intent, name_flag("--kv-intent", parse_intent_choice(intent)));
  return policy;
}

void add_kv_policy_options(CLI::App& command, KvPolicyOptions& options) {
  const char* group = "Cache policy";
  command
      .add_option("--kv-attend", options.attend,
                  "Cached tokens that a step reads for one KV head: a share (12%), a number, "
                  "mass=0.98, or all")
      ->type_name("BUDGET")
      ->capture_default_str()
      ->group(group);
  command.add_option("--kv-attend-min", options.attend_min, "Floor: fewer tokens are not pruned")
      ->check(integer_between(1, 1 << 24))
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-resident", options.resident,
                  "Cache that stays in its full format: a share (25%), bytes (256MiB) or all; the "
                  "rest is demoted to int4")
      ->type_name("BUDGET")
      ->capture_default_str()
      ->group(group);
  command.add_option("--kv-scorer", options.scorer, "What tokens are ranked by")
      ->check(CLI::IsMember({"code", "exact", "random", "recent"}))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-candidates", options.candidates,
                  "Tokens that the codes pick for exact ranking, in multiples of the budget")
      ->check(number_between(1, 64))
      ->type_name("X")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--kv-page-scorer", options.page_scorer,
                  "What pages are ranked by for --kv-resident: exact, code, moment, box, minmax, "
                  "dot, cosine, lexical, recent, random or lru")
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--kv-intent", options.intent,
          "Whose queries pages are ranked against: span, first, memory, span+memory, stated")
      ->type_name("NAME")
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--kv-force-selection", options.force_selection,
                "Select even where everything fits (for tests)")
      ->group(group);
}

}  // namespace ikv
