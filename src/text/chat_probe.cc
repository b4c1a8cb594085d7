// Finding out what a template can do, by rendering small conversations.
#include <optional>
#include <string_view>
#include <utility>

#include "text/chat_shape.h"

namespace ikv {
namespace {

constexpr std::string_view kToolName = "ikv_probe_tool";
constexpr std::string_view kCallName = "ikv_probe_call";
constexpr std::string_view kResult = "ikv_probe_result";
constexpr std::string_view kCallId = "call00000";  // Mistral's templates demand nine characters

size_t role_index(Role role) {
  return static_cast<size_t>(role);
}

Message message(Role role, std::string content) {
  Message out;
  out.role = role;
  out.content = std::move(content);
  return out;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

size_t count(std::string_view text, std::string_view part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

class Probe {
 public:
  Probe(const TemplateProgram& program, const Tokenizer& tokenizer)
      : program_(program), tokenizer_(tokenizer) {}

  TemplateTraits run() {
    traits_.has_system = system_works();
    traits_.has_tools = tools_work();
    learn_turns();
    learn_system();
    learn_tool();
    return std::move(traits_);
  }

 private:
  Result<MarkedRender> render(std::vector<Message> messages, OrderedJson tools,
                              bool add_generation_prompt) const {
    RenderInput input;
    input.tools = std::move(tools);
    input.add_generation_prompt = add_generation_prompt;
    const auto prepared = prepare_messages(messages, input.tools, traits_);
    return render_marked(program_, tokenizer_, prepared, input);
  }

  bool system_works() {
    const auto out =
        render({message(Role::kSystem, "ikv_probe_system"), message(Role::kUser, "ikv_probe_user")},
               {}, true);
    return out.ok() && contains(out->text, "ikv_probe_system") &&
           contains(out->text, "ikv_probe_user");
  }

  static std::vector<Message> tool_conversation() {
    Message call;
    call.role = Role::kAssistant;
    call.tool_calls = {{std::string(kCallId), std::string(kCallName), R"({"ikv_argument": "x"})"}};
    Message result = message(Role::kTool, std::string(kResult));
    result.tool_call_id = kCallId;
    return {message(Role::kUser, "ikv_probe_user"), call, result};
  }

  static OrderedJson probe_tools() {
    OrderedJson function = {{"name", kToolName},
                            {"description", "probe"},
                            {"parameters",
                             {{"type", "object"},
                              {"properties", {{"ikv_argument", {{"type", "string"}}}}},
                              {"required", {"ikv_argument"}}}}};
    OrderedJson tools = OrderedJson::array();
    tools.push_back({{"type", "function"}, {"function", function}});
    return tools;
  }

  /// The tool conversation with the call's content null or empty; nothing if the template does not
  /// show all of it.
  std::optional<std::string> tool_text(bool null_content) {
    traits_.null_content = null_content;
    const auto out = render(tool_conversation(), probe_tools(), true);
    if (!out.ok()) return std::nullopt;
    for (std::string_view part :
         {kToolName, kCallName, std::string_view("ikv_argument"), kResult}) {
      if (!contains(out->text, part)) return std::nullopt;
    }
    return out->text;
  }

  bool tools_work() {
    traits_.has_tools = true;
    const std::optional<std::string> empty = tool_text(false);
    const std::optional<std::string> null = tool_text(true);
    // Templates that do not expect null write Python's "None" in its place.
    traits_.null_content = null && !(empty && count(*null, "None") > count(*empty, "None"));
    const std::optional<std::string>& text = traits_.null_content ? null : empty;
    traits_.hermes_calls = !text || (contains(*text, "<tool_call>") &&
                                     contains(*text, "{\"name\": \"ikv_probe_call\""));
    return text.has_value();
  }

  std::string& header(Role role) { return traits_.header[role_index(role)]; }
  std::string& footer(Role role) { return traits_.footer[role_index(role)]; }

  /// Removes `prefix` from the front of `text` as far as they agree.
  static std::string after_common(std::string_view text, std::string_view prefix) {
    size_t n = 0;
    while (n < text.size() && n < prefix.size() && text[n] == prefix[n]) ++n;
    return std::string(text.substr(n));
  }

  void learn_turns() {
    const auto one = render({message(Role::kUser, "ikv_probe_1")}, {}, false);
    if (one.ok() && one->pieces.size() == 1) {
      footer(Role::kUser) = one->text.substr(one->pieces[0].end);
    }
    const auto turns =
        render({message(Role::kUser, "ikv_probe_1"), message(Role::kAssistant, "ikv_probe_2"),
                message(Role::kUser, "ikv_probe_3"), message(Role::kAssistant, "ikv_probe_4")},
               {}, false);
    if (!turns.ok() || turns->pieces.size() != 4) return;
    const auto gap = [&](size_t i) {
      const size_t begin = turns->pieces[i].end;
      return turns->text.substr(begin, turns->pieces[i + 1].begin - begin);
    };
    footer(Role::kAssistant) = turns->text.substr(turns->pieces[3].end);
    header(Role::kAssistant) = after_common(gap(0), footer(Role::kUser));
    header(Role::kUser) = after_common(gap(1), footer(Role::kAssistant));
  }

  void learn_system() {
    if (!traits_.has_system) return;
    const auto out = render(
        {message(Role::kSystem, "ikv_probe_1"), message(Role::kUser, "ikv_probe_2")}, {}, false);
    if (!out.ok() || out->pieces.size() != 2) return;
    std::string_view before = std::string_view(out->text).substr(0, out->pieces[0].begin);
    const std::string_view bos = tokenizer_.token_bytes(tokenizer_.bos());
    // ChatML models name their role mark as BOS: then it is no BOS but the header's own.
    const bool opens_headers = header(Role::kUser).starts_with(bos);
    if (!bos.empty() && !opens_headers && before.starts_with(bos)) before.remove_prefix(bos.size());
    header(Role::kSystem) = before;
    std::string_view gap = std::string_view(out->text).substr(
        out->pieces[0].end, out->pieces[1].begin - out->pieces[0].end);
    if (gap.ends_with(header(Role::kUser))) gap.remove_suffix(header(Role::kUser).size());
    footer(Role::kSystem) = gap;
  }

  void learn_tool() {
    std::vector<Message> messages = tool_conversation();
    messages.push_back(message(Role::kAssistant, "ikv_probe_end"));
    const auto out = render(messages, probe_tools(), false);
    if (!out.ok()) return;
    const auto find = [&](int32_t index) -> const PieceRange* {
      for (const PieceRange& piece : out->pieces) {
        if (piece.message == index) return &piece;
      }
      return nullptr;
    };
    const PieceRange* result = find(2);
    const PieceRange* end = find(3);
    if (result == nullptr || end == nullptr) return;
    std::string_view gap =
        std::string_view(out->text).substr(result->end, end->begin - result->end);
    const std::string& next = header(Role::kAssistant);
    if (gap.ends_with(next)) gap.remove_suffix(next.size());
    footer(Role::kTool) = gap;
    const std::string_view before = std::string_view(out->text).substr(0, result->begin);
    const std::string& last = footer(Role::kAssistant);
    const size_t at = last.empty() ? std::string_view::npos : before.rfind(last);
    if (at != std::string_view::npos) header(Role::kTool) = before.substr(at + last.size());
  }

  const TemplateProgram& program_;
  const Tokenizer& tokenizer_;
  TemplateTraits traits_;
};

}  // namespace

TemplateTraits probe_template(const TemplateProgram& program, const Tokenizer& tokenizer) {
  return Probe(program, tokenizer).run();
}

}  // namespace ikv
