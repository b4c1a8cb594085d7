#include "cmd_chat.h"

#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "chat_session.h"
#include "cli_error.h"
#include "engine_options.h"
#include "line_editor.h"
#include "reply_interrupt.h"

namespace ikv {
namespace {

constexpr size_t kShownToolBytes = 300;

struct ChatOptions {
  EngineOptions engine;
  GenerationOptions generation;
  AuditOptions audit;
  std::string system;
  std::string messages_file;
  std::string save_file;
  bool verbose = false;
};

void print_text(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void print_tool_calls(const Message& message) {
  for (const ToolCall& call : message.tool_calls) {
    std::printf("[calls %s(%s)]\n", one_line(call.name).c_str(),
                one_line(call.arguments_json).c_str());
  }
}

// Streams one reply; its cost goes to standard error where --verbose asks.
Status reply_and_print(ChatSession& session, bool verbose) {
  Result<GenerationResult> result = session.reply(print_text);
  std::printf("\n");
  if (!result.ok()) return result.error();
  print_tool_calls(result->message);
  if (result->finish_reason == FinishReason::kCancelled) std::printf("[stopped]\n");
  if (result->finish_reason == FinishReason::kLength) std::printf("[cut at the length limit]\n");
  std::fflush(stdout);
  if (verbose) std::fprintf(stderr, "[%s]\n", describe_usage(result->usage).c_str());
  return {};
}

// Long tool outputs are shown by their beginning; the model gets all of it.
void print_message(const Message& message) {
  std::string text = message.content.value_or("");
  if (message.role == Role::kTool && text.size() > kShownToolBytes) {
    size_t end = kShownToolBytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + " … (" + std::to_string(text.size()) + " bytes)";
  }
  std::printf("[%s] %s\n", std::string(role_name(message.role)).c_str(), text.c_str());
  print_tool_calls(message);
}

// Plays a conversation from a file: the model replies after each user message and each run of tool
// results that no assistant message of the file answers.
Status play(ChatSession& session, std::vector<Message> script, bool verbose) {
  for (size_t i = 0; i < script.size(); ++i) {
    const Role role = script[i].role;
    print_message(script[i]);
    session.add(std::move(script[i]));
    if (role != Role::kUser && role != Role::kTool) continue;
    const bool last = i + 1 == script.size();
    if (!last && script[i + 1].role == Role::kAssistant) continue;
    if (!last && role == Role::kTool && script[i + 1].role == Role::kTool) continue;
    std::printf("[assistant] ");
    Status status = reply_and_print(session, verbose);
    if (!status.ok()) return status;
  }
  return {};
}

Status run_command_line(ChatSession& session, const std::string& line) {
  Result<std::string> shown = session.run_command(line);
  if (!shown.ok()) return shown.error();
  if (!shown->empty()) std::printf("%s\n", shown->c_str());
  return {};
}

// Reads lines until the end. On a terminal an error is told and the talk goes on; a script stops.
int converse(ChatSession& session, LineEditor& editor, bool verbose) {
  std::string line;
  while (!session.quitting()) {
    LineEnd end = editor.read("> ", line);
    if (end == LineEnd::kEndOfInput) break;
    if (end == LineEnd::kInterrupted) {
      std::printf("(Ctrl-D or /quit leaves)\n");
      continue;
    }
    if (line.find_first_not_of(" \t\n") == std::string::npos) continue;
    Status status;
    if (line.front() == '/') {
      status = run_command_line(session, line);
    } else {
      Message message;
      message.content = line;
      session.add(std::move(message));
      status = reply_and_print(session, verbose);
      if (!status.ok()) session.drop_last();
    }
    if (!status.ok()) {
      const int code = report_failure(status.error());
      if (!editor.interactive()) return code;
    }
  }
  return kExitOk;
}

int run_chat(const ChatOptions& options) {
  Conversation script;
  if (!options.messages_file.empty()) {
    Result<Conversation> loaded = load_conversation(options.messages_file);
    if (!loaded.ok()) return report_failure(loaded.error());
    script = std::move(loaded).value();
  }
  Result<AuditFile> audit = AuditFile::open(options.audit.path, options.audit.with_text);
  if (!audit.ok()) return report_failure(audit.error());
  const bool interactive = options.messages_file.empty() && LineEditor::on_terminal();
  if (interactive) block_reply_interrupts();
  Result<std::unique_ptr<Engine>> engine = Engine::create(options.engine.resolve());
  if (!engine.ok()) return report_failure(engine.error());
  Conversation start;
  start.tools_json = script.tools_json;
  if (!options.system.empty()) {
    Message system;
    system.role = Role::kSystem;
    system.content = options.system;
    start.messages.push_back(std::move(system));
  }
  ChatSession session(*engine.value(), options.generation.resolve(), std::move(start), interactive);
  session.set_audit_file(std::move(audit).value());
  int code = kExitOk;
  if (!options.messages_file.empty()) {
    Status played = play(session, std::move(script.messages), options.verbose);
    if (!played.ok()) return report_failure(played.error());
  } else {
    LineEditor editor(default_history_path());
    if (interactive) {
      std::printf("%s. /help lists commands.\n", engine.value()->model_info().name.c_str());
    }
    code = converse(session, editor, options.verbose);
  }
  if (code == kExitOk && !options.save_file.empty()) {
    Status saved = save_conversation(options.save_file, session.conversation());
    if (!saved.ok()) return report_failure(saved.error());
  }
  return code;
}

}  // namespace

void add_chat_command(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ChatOptions>();
  CLI::App* command =
      app.add_subcommand("chat", "Talk to a model in the terminal, or play a conversation");
  command->footer(
      "Examples:\n"
      "  intentkv chat -m model.gguf --system 'You are terse.'\n"
      "  printf 'Hello!\\nWhat did I say?\\n' | intentkv chat -m model.gguf --temp 0\n"
      "  intentkv chat -m model.gguf --messages conversation.json --save replies.json\n"
      "On a terminal /help lists the commands. From a pipe every line is one message or command.");
  command->add_option("--system", options->system, "System prompt")->type_name("TEXT");
  command
      ->add_option("--messages", options->messages_file,
                   "Play this conversation (JSON: messages, tools); the model replies where an "
                   "assistant's message is missing")
      ->type_name("FILE");
  command->add_option("--save", options->save_file, "Write the conversation as JSON at the end")
      ->type_name("FILE");
  command->add_flag("-v,--verbose", options->verbose, "Print each reply's cost on standard error");
  add_engine_options(*command, options->engine);
  add_generation_options(*command, options->generation);
  add_audit_options(*command, options->audit);
  command->callback([options, &exit_code] { exit_code = run_chat(*options); });
}

}  // namespace ikv
