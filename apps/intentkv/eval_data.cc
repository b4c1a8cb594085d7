#include "eval_data.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "file_io.h"

namespace ikv {
namespace {

using Json = nlohmann::json;

std::optional<Role> parse_role(const std::string& name) {
  for (const Role role : {Role::kSystem, Role::kUser, Role::kAssistant, Role::kTool}) {
    if (role_name(role) == name) return role;
  }
  return std::nullopt;
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

Result<Message> parse_message(const Json& json) {
  if (!json.is_object()) return invalid_file("a message must be an object");
  Message message;
  const auto role = parse_role(json.value("role", std::string()));
  if (!role) return invalid_file("unknown role in " + json.dump().substr(0, 80));
  message.role = *role;
  if (json.contains("content") && !json["content"].is_null()) {
    message.content = text_of(json["content"]);
  }
  if (json.contains("name") && json["name"].is_string()) message.name = json["name"];
  if (json.contains("tool_call_id") && json["tool_call_id"].is_string()) {
    message.tool_call_id = json["tool_call_id"];
  }
  if (!json.contains("tool_calls") || !json["tool_calls"].is_array()) return message;
  for (const Json& call : json["tool_calls"]) {
    const Json& function = call.contains("function") ? call["function"] : call;
    ToolCall parsed;
    parsed.id = call.contains("id") && call["id"].is_string() ? call["id"].get<std::string>() : "";
    parsed.name = function.contains("name") ? text_of(function["name"]) : "";
    parsed.arguments_json = function.contains("arguments") ? text_of(function["arguments"]) : "{}";
    message.tool_calls.push_back(std::move(parsed));
  }
  return message;
}

EvalQuestion parse_question(const Json& json) {
  EvalQuestion question;
  question.after_turn = json.value("after_turn", -1);
  question.question = json.value("question", std::string());
  question.answer = json.contains("answer") ? text_of(json["answer"]) : "";
  question.probe = json.value("probe", std::string());
  question.pair = json.value("pair", std::string());
  return question;
}

Result<EvalConversation> parse_conversation(const Json& json, const std::string& fallback_id) {
  const Json& messages = json.is_object() && json.contains("messages") ? json["messages"] : json;
  if (!messages.is_array()) return invalid_file("no list of messages");
  EvalConversation conversation;
  conversation.id = fallback_id;
  if (json.is_object() && json.contains("id")) conversation.id = text_of(json["id"]);
  for (const Json& message : messages) {
    IKV_ASSIGN_OR_RETURN(Message parsed, parse_message(message));
    conversation.messages.push_back(std::move(parsed));
  }
  if (!json.is_object() || !json.contains("questions")) return conversation;
  for (const Json& question : json["questions"]) {
    conversation.questions.push_back(parse_question(question));
  }
  return conversation;
}

}  // namespace

Result<std::vector<EvalConversation>> read_conversations(const std::string& path) {
  IKV_ASSIGN_OR_RETURN(const std::string text, read_file(path));
  std::vector<EvalConversation> conversations;
  const auto add = [&](std::string_view part, const std::string& where) -> Status {
    try {
      const Json json = Json::parse(part);
      auto conversation = parse_conversation(json, where);
      if (!conversation.ok()) {
        return invalid_file("'" + path + "', " + where + ": " + conversation.error().message);
      }
      conversations.push_back(std::move(conversation).value());
    } catch (const Json::exception& e) {
      return invalid_file("'" + path + "', " + where + ": " + e.what());
    }
    return {};
  };
  if (Json::accept(text)) {
    IKV_RETURN_IF_ERROR(add(text, "conversation"));
    return conversations;
  }
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    ++number;
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    IKV_RETURN_IF_ERROR(add(line, "line " + std::to_string(number)));
  }
  if (conversations.empty()) return invalid_file("'" + path + "' holds no conversation");
  return conversations;
}

Result<EvalSession> make_eval_session(const EvalConversation& conversation,
                                      const ChatTemplate& chat_template, int32_t max_tokens) {
  ChatRenderOptions options;
  options.add_generation_prompt = false;
  IKV_ASSIGN_OR_RETURN(TokenizedChat chat, chat_template.tokenize(conversation.messages, options));
  EvalSession session;
  session.id = conversation.id;
  LogicalPos whole = 0;  // tokens of the turns that fit
  for (size_t i = 0; i < chat.spans.size(); ++i) {
    const Span& span = chat.spans[i];
    if (span.role != Role::kAssistant || span.part != SpanPart::kContent || span.message < 0) {
      continue;
    }
    EvalTurn turn{span.message, span.begin, span.end, Role::kUser};
    if (span.message > 0) {
      turn.asked_by = conversation.messages[static_cast<size_t>(span.message) - 1].role;
    }
    // The end mark is the reply's last prediction.
    if (i + 1 < chat.spans.size() && chat.spans[i + 1].part == SpanPart::kFooter) {
      turn.end = std::min(span.end + 1, chat.spans[i + 1].end);
    }
    if (turn.end > max_tokens || turn.begin == 0) break;
    if (!session.turns.empty() && session.turns.back().message == turn.message) {
      session.turns.back().end = turn.end;  // a content in pieces
    } else {
      session.turns.push_back(turn);
    }
    whole = turn.end;
  }
  chat.tokens.resize(static_cast<size_t>(whole));
  session.tokens = std::move(chat.tokens);
  return session;
}

Status add_needles(const EvalConversation& conversation, const ChatTemplate& chat_template,
                   const Tokenizer& tokenizer, EvalSession& session) {
  for (const EvalQuestion& question : conversation.questions) {
    const auto last = static_cast<size_t>(question.after_turn);
    if (question.after_turn < 0 || last >= conversation.messages.size()) continue;
    EvalNeedle needle;
    needle.after_turn = -1;
    for (size_t i = 0; i < session.turns.size(); ++i) {
      if (session.turns[i].message <= question.after_turn) {
        needle.after_turn = static_cast<int32_t>(i);
      }
    }
    // Cut before the question's place, or nothing before it.
    if (needle.after_turn < 0) continue;
    if (session.turns.back().message < question.after_turn - 1) continue;
    std::vector<Message> messages(
        conversation.messages.begin(),
        conversation.messages.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    Message ask;
    ask.role = Role::kUser;
    ask.content = question.question;
    messages.push_back(std::move(ask));
    IKV_ASSIGN_OR_RETURN(const TokenizedChat chat, chat_template.tokenize(messages, {}));
    const auto done =
        static_cast<size_t>(session.turns[static_cast<size_t>(needle.after_turn)].end - 1);
    if (chat.tokens.size() <= done ||
        !std::equal(chat.tokens.begin(), chat.tokens.begin() + static_cast<std::ptrdiff_t>(done),
                    session.tokens.begin())) {
      continue;  // the template writes the past differently here
    }
    needle.question.assign(chat.tokens.begin() + static_cast<std::ptrdiff_t>(done),
                           chat.tokens.end());
    IKV_ASSIGN_OR_RETURN(needle.answer, tokenizer.encode(question.answer, false));
    if (needle.answer.empty()) continue;
    needle.probe = question.probe;
    needle.pair = question.pair;
    session.needles.push_back(std::move(needle));
  }
  return {};
}

}  // namespace ikv
