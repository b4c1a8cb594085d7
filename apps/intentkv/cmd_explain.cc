#include "cmd_explain.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "audit_json.h"
#include "cli_error.h"
#include "explain_text.h"
#include "flag_checks.h"
#include "result_json.h"

namespace ikv {
namespace {

struct ExplainOptions {
  std::string file;
  int turn = 0;
  std::string session;
  std::string messages_file;
  std::string colour = "auto";
  ExplainStyle style;
  size_t num_words = 20;
  bool summary = false;
};

// A terminal, unless the person asked for no colour (https://no-color.org).
bool wants_colour(const std::string& choice) {
  if (choice != "auto") return choice == "always";
  const char* no_color = std::getenv("NO_COLOR");
  if (no_color != nullptr && *no_color != '\0') return false;
  const char* term = std::getenv("TERM");
  if (term != nullptr && std::string(term) == "dumb") return false;
  return isatty(STDOUT_FILENO) != 0;
}

bool of_session(const AuditRecord& record, const ExplainOptions& options) {
  return options.session.empty() || record.audit.session_id == options.session;
}

// The turn that was asked for, the last one by default; the newest of equal turns.
Result<size_t> find_turn(const std::vector<AuditRecord>& records, const ExplainOptions& options) {
  std::set<std::string> sessions;
  std::string turns;
  for (size_t i = records.size(); i-- > 0;) {
    sessions.insert(records[i].audit.session_id);
    if (!of_session(records[i], options)) continue;
    if (options.turn == 0 || records[i].audit.turn == options.turn) return i;
    turns = " " + std::to_string(records[i].audit.turn) + turns;
  }
  if (turns.empty()) {
    std::string names;
    for (const std::string& name : sessions) names += " '" + name + "'";
    return make_error(ErrorCode::kNotFound,
                      "no session '" + options.session + "' in the file; it has" + names);
  }
  return make_error(ErrorCode::kNotFound,
                    "no turn " + std::to_string(options.turn) + " in the file; it has" + turns);
}

// The session's turn before, for what came back. A session without an id has no before.
const AuditRecord* turn_before(const std::vector<AuditRecord>& records, size_t index) {
  const std::string& session = records[index].audit.session_id;
  for (size_t i = index; i-- > 0 && !session.empty();) {
    if (records[i].audit.session_id == session &&
        records[i].audit.turn < records[index].audit.turn) {
      return &records[i];
    }
  }
  return nullptr;
}

Status print_transcript(const ExplainOptions& options, const std::vector<AuditRecord>& records,
                        size_t index) {
  const AuditRecord& record = records[index];
  if (!record.texts.empty()) {
    std::printf(
        "\ntranscript: share read, then kept (%.0f %% or more), partly or pruned (less than %.0f "
        "%%), int4 where demoted\n%s\n",
        100 * options.style.read_above, 100 * options.style.pruned_below,
        options.style.colour ? "bold: kept; green: kept, and pruned at the turn before; dim: pruned"
                             : "«kept», ‹kept, and pruned at the turn before›");
    std::printf("%s",
                explain_transcript(record, turn_before(records, index), options.style).c_str());
    return {};
  }
  if (options.messages_file.empty()) {
    std::printf(
        "\nThe file holds no text: `--audit-text` writes it along, or `--messages FILE` shows "
        "whole messages.\n");
    return {};
  }
  IKV_ASSIGN_OR_RETURN(const Conversation conversation, load_conversation(options.messages_file));
  std::printf("\n%s",
              explain_conversation(record.audit, conversation.messages, options.style).c_str());
  return {};
}

Status run(const ExplainOptions& options) {
  if (options.style.pruned_below > options.style.read_above) {
    return invalid_argument("--pruned-below must not be more than --kept-above");
  }
  IKV_ASSIGN_OR_RETURN(const auto records, read_audit_file(options.file));
  IKV_ASSIGN_OR_RETURN(const size_t index, find_turn(records, options));
  const AuditRecord& record = records[index];
  std::printf("%s\n%s", explain_figures(record.audit).c_str(),
              explain_messages(record.audit).c_str());
  const std::string words = explain_words(record, options.num_words);
  if (!words.empty()) {
    std::printf("\nread most of what stands further back (share, role, message, word):\n%s",
                words.c_str());
  }
  return options.summary ? Status() : print_transcript(options, records, index);
}

}  // namespace

void add_explain_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ExplainOptions>();
  CLI::App* command =
      app.add_subcommand("explain", "Show what the cache policy kept and pruned for a turn");
  command->footer(
      "Example:\n"
      "  intentkv chat -m model.gguf --kv-policy intent --audit a.jsonl --audit-text\n"
      "  intentkv explain a.jsonl --turn 7");
  command->add_option("file", options->file, "What --audit wrote")->required()->type_name("FILE");
  command->add_option("--turn", options->turn, "Turn to show; default: the last")
      ->check(integer_between(1, 1 << 30))
      ->type_name("N");
  command->add_option("--session", options->session, "Session, if the file has several")
      ->type_name("ID");
  command
      ->add_option("--messages", options->messages_file,
                   "The conversation, for a file without text: marks whole messages")
      ->type_name("FILE");
  command
      ->add_option("--kept-above", options->style.read_above,
                   "Share of readings from which a token counts as kept")
      ->check(number_between(0, 1))
      ->capture_default_str();
  command
      ->add_option("--pruned-below", options->style.pruned_below,
                   "Share of readings below which it counts as pruned")
      ->check(number_between(0, 1))
      ->capture_default_str();
  command->add_option("--words", options->num_words, "Most words to list")
      ->check(integer_between(0, 10000))
      ->capture_default_str();
  command->add_option("--color", options->colour, "When to use colour")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  command->add_flag("--summary", options->summary, "Figures only, no transcript");
  command->callback([options, &exit_code] {
    options->style.colour = wants_colour(options->colour);
    const Status status = run(*options);
    exit_code = status.ok() ? kExitOk : report_failure(status.error());
  });
}

}  // namespace ikv
