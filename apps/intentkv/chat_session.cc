#include "chat_session.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "base/result.h"
#include "reply_interrupt.h"

namespace ikv {
namespace {

constexpr const char* kHelp =
    "/reset          forget the conversation, keep the system prompt\n"
    "/system [TEXT]  show the system prompt, or set it and forget the conversation\n"
    "/save FILE      write the conversation as JSON; `--messages FILE` reads it\n"
    "/stats          tokens, speed and memory so far\n"
    "/help           this list\n"
    "/quit           leave (also Ctrl-D)\n"
    "Ctrl-C stops a reply. A line that ends with \\ goes on in the next.";

double mebibytes(uint64_t bytes) {
  return static_cast<double>(bytes) / (1024.0 * 1024.0);
}

double tokens_per_second(int32_t tokens, int64_t us) {
  return us > 0 && tokens > 0 ? tokens * 1e6 / static_cast<double>(us) : 0.0;
}

Error usage_error(const std::string& text) {
  return invalid_argument(text + "; /help lists commands");
}

}  // namespace

std::string describe_usage(const Usage& usage) {
  char line[256];
  std::snprintf(
      line, sizeof line,
      "prompt %d tokens: %d cached, %d evaluated in %.0f ms; reply %d tokens, %.1f tokens/s",
      usage.prompt_tokens, usage.cached_tokens, usage.evaluated_tokens,
      static_cast<double>(usage.prefill_us) / 1e3, usage.completion_tokens,
      tokens_per_second(usage.completion_tokens - 1, usage.decode_us));
  return line;
}

ChatSession::ChatSession(Engine& engine, GenerationConfig generation, Conversation conversation,
                         bool interruptible)
    : engine_(engine),
      generation_(std::move(generation)),
      conversation_(std::move(conversation)),
      interruptible_(interruptible) {}

void ChatSession::add(Message message) {
  conversation_.messages.push_back(std::move(message));
}

void ChatSession::drop_last() {
  if (!conversation_.messages.empty()) conversation_.messages.pop_back();
}

Result<GenerationResult> ChatSession::reply(const TextCallback& on_text) {
  ChatRequest request;
  request.messages = conversation_.messages;
  request.tools_json = conversation_.tools_json;
  request.generation = generation_;
  request.audit = audit_file_.wanted();
  Result<std::shared_ptr<Generation>> started = engine_.chat(std::move(request));
  if (!started.ok()) return started.error();
  std::shared_ptr<Generation> generation = std::move(started).value();
  std::optional<ReplyInterrupt> interrupt;
  if (interruptible_) interrupt.emplace(generation);
  for (bool finished = false; !finished;) {
    Result<GenerationEvent> event = generation->next();
    if (!event.ok()) return event.error();
    on_text(event->text);
    finished = event->finished;
  }
  Result<GenerationResult> result = generation->wait();
  if (!result.ok()) return result.error();
  IKV_RETURN_IF_ERROR(audit_file_.write(engine_, *result));
  last_usage_ = result->usage;
  ++num_replies_;
  add(result->message);
  return result;
}

Result<std::string> ChatSession::run_command(const std::string& line) {
  const size_t space = line.find(' ');
  const std::string name = line.substr(0, space);
  const size_t start = space == std::string::npos ? space : line.find_first_not_of(' ', space);
  const std::string argument = start == std::string::npos ? "" : line.substr(start);
  if (name == "/system") return set_system(argument);
  if (name == "/save") {
    if (argument.empty()) return usage_error("/save needs a file's name");
    Status saved = save_conversation(argument, conversation_);
    if (!saved.ok()) return saved.error();
    return std::to_string(conversation_.messages.size()) + " messages written to " + argument;
  }
  if (!argument.empty()) return usage_error(name + " takes nothing after it");
  if (name == "/help") return std::string(kHelp);
  if (name == "/stats") return stats();
  if (name == "/quit" || name == "/exit") {
    quitting_ = true;
    return std::string();
  }
  if (name == "/reset") {
    std::vector<Message>& messages = conversation_.messages;
    const bool has_system = !messages.empty() && messages.front().role == Role::kSystem;
    messages.resize(has_system ? 1 : 0);
    return std::string("the conversation is forgotten");
  }
  return usage_error("unknown command " + name);
}

Result<std::string> ChatSession::set_system(const std::string& text) {
  std::vector<Message>& messages = conversation_.messages;
  if (text.empty()) {
    const bool has_system = !messages.empty() && messages.front().role == Role::kSystem;
    return has_system ? messages.front().content.value_or("")
                      : std::string("no system prompt is set");
  }
  Message system;
  system.role = Role::kSystem;
  system.content = text;
  messages.clear();
  messages.push_back(std::move(system));
  return std::string("system prompt set; the conversation starts anew");
}

std::string ChatSession::stats() const {
  const EngineStats stats = engine_.stats();
  char text[512];
  std::snprintf(text, sizeof text,
                "messages %zu, replies %d\n"
                "evaluated %llu prompt tokens, taken from the cache %llu, made %llu\n"
                "cache %.1f of %.1f MiB in use, peak %.1f; weights %.1f MiB",
                conversation_.messages.size(), num_replies_,
                static_cast<unsigned long long>(stats.prompt_tokens_evaluated),
                static_cast<unsigned long long>(stats.prompt_tokens_cached),
                static_cast<unsigned long long>(stats.completion_tokens),
                mebibytes(stats.kv_used_bytes), mebibytes(stats.kv_cap_bytes),
                mebibytes(stats.kv_peak_bytes), mebibytes(stats.weight_bytes));
  std::string result = text;
  if (num_replies_ > 0) result += "\nlast reply: " + describe_usage(last_usage_);
  return result;
}

}  // namespace ikv
