// Rendering with sentinels: how each content's place in the rendered text is found.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "text/chat_shape.h"
#include "text/hermes.h"
#include "text/utf8.h"

namespace ikv {
namespace {

constexpr std::string_view kWhitespace = " \t\r\n\v\f";

/// Three noncharacters of Unicode that no string of the conversation contains. They live only
/// between our rendering and our parsing of its result.
struct Marks {
  std::string begin;
  std::string end;
  std::string control;
};

/// Where sentinels stand: around the whole piece, or inside its outer whitespace, so that a
/// template that trims still trims.
enum class Placement { kNone, kOuter, kInner };

struct FlatPiece {
  std::string text;  // with control tokens marked
  int32_t message = -1;
  bool tracked = false;
};

struct Conversation {
  Marks marks;
  std::vector<FlatPiece> pieces;  // of all messages, in order
};

std::string noncharacter(int index) {
  std::string out = "\xEF\xB7";  // U+FDD0 + index
  out.push_back(static_cast<char>(0x90 + index));
  return out;
}

Result<Marks> choose_marks(std::string_view all_text) {
  std::vector<std::string> unused;
  for (int i = 0; i < 32 && unused.size() < 3; ++i) {
    if (all_text.find(noncharacter(i)) == std::string_view::npos) unused.push_back(noncharacter(i));
  }
  if (unused.size() < 3) {
    return invalid_argument(
        "the messages contain nearly all Unicode noncharacters U+FDD0..U+FDEF; remove some");
  }
  return Marks{unused[0], unused[1], unused[2]};
}

/// Marks control tokens in every string of a foreign JSON value, keys included.
Status mark_strings(OrderedJson& value, const Tokenizer& tokenizer, const std::string& mark) {
  if (value.is_string()) {
    const std::string text = utf8_repair(value.get_ref<const std::string&>());
    IKV_ASSIGN_OR_RETURN(std::string marked, tokenizer.mark_control_tokens(text, mark));
    value = std::move(marked);
  } else if (value.is_array()) {
    for (OrderedJson& item : value) IKV_RETURN_IF_ERROR(mark_strings(item, tokenizer, mark));
  } else if (value.is_object()) {
    OrderedJson marked = OrderedJson::object();
    for (auto& [key, item] : value.items()) {
      IKV_RETURN_IF_ERROR(mark_strings(item, tokenizer, mark));
      IKV_ASSIGN_OR_RETURN(std::string new_key,
                           tokenizer.mark_control_tokens(utf8_repair(key), mark));
      marked[new_key] = std::move(item);
    }
    value = std::move(marked);
  }
  return {};
}

std::string wrap(const FlatPiece& piece, size_t index, const Marks& marks, Placement placement) {
  const std::string number = std::to_string(index);
  size_t begin = 0, end = piece.text.size();
  if (placement == Placement::kInner) {
    begin = piece.text.find_first_not_of(kWhitespace);
    if (begin == std::string::npos) return piece.text;
    end = piece.text.find_last_not_of(kWhitespace) + 1;
  }
  return piece.text.substr(0, begin) + marks.begin + number + marks.begin +
         piece.text.substr(begin, end - begin) + marks.end + number + marks.end +
         piece.text.substr(end);
}

class Renderer {
 public:
  Renderer(const TemplateProgram& program, const Tokenizer& tokenizer,
           std::span<const PreparedMessage> messages, const RenderInput& input)
      : program_(program), tokenizer_(tokenizer), messages_(messages), input_(input) {}

  Status prepare();
  Result<MarkedRender> run();

 private:
  Result<std::string> render(Placement placement, const std::set<size_t>& excluded) const;
  OrderedJson message_json(size_t index, std::string content) const;
  /// Takes sentinels out of `rendered`; pieces whose two sentinels stand once and in order get a
  /// place.
  MarkedRender strip(std::string_view rendered) const;
  void restore_whitespace(MarkedRender& render) const;
  std::optional<MarkedRender> try_placement(Placement placement, const std::set<size_t>& excluded,
                                            const std::string& plain, size_t& diverged) const;

  const TemplateProgram& program_;
  const Tokenizer& tokenizer_;
  std::span<const PreparedMessage> messages_;
  const RenderInput& input_;
  Conversation conversation_;
  OrderedJson base_ = OrderedJson::object();  // context without messages
  std::vector<OrderedJson> calls_;            // marked native calls, by message
};

OrderedJson native_calls(const PreparedMessage& message) {
  OrderedJson calls = OrderedJson::array();
  for (const ToolCall& call : message.tool_calls) {
    OrderedJson function = OrderedJson::object();
    function["name"] = utf8_repair(call.name);
    function["arguments"] = tool_call_arguments(call);
    OrderedJson json = OrderedJson::object();
    json["id"] = utf8_repair(call.id);
    json["type"] = "function";
    json["function"] = std::move(function);
    calls.push_back(std::move(json));
  }
  return calls;
}

Status Renderer::prepare() {
  std::string all_text = input_.tools.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) +
                         input_.kwargs.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  for (const PreparedMessage& message : messages_) {
    for (const ChatPiece& piece : message.pieces) all_text += piece.text;
    calls_.push_back(native_calls(message));
    all_text += calls_.back().dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
    all_text += message.name + message.tool_call_id;
  }
  IKV_ASSIGN_OR_RETURN(conversation_.marks, choose_marks(all_text));
  const std::string& mark = conversation_.marks.control;
  for (const PreparedMessage& message : messages_) {
    for (const ChatPiece& piece : message.pieces) {
      FlatPiece flat{piece.text, piece.message, !piece.trusted && piece.message >= 0};
      if (!piece.trusted) {
        IKV_ASSIGN_OR_RETURN(flat.text, tokenizer_.mark_control_tokens(piece.text, mark));
      }
      conversation_.pieces.push_back(std::move(flat));
    }
  }
  for (OrderedJson& calls : calls_) IKV_RETURN_IF_ERROR(mark_strings(calls, tokenizer_, mark));
  if (input_.kwargs.is_object()) base_ = input_.kwargs;
  IKV_RETURN_IF_ERROR(mark_strings(base_, tokenizer_, mark));
  OrderedJson tools = input_.tools;
  IKV_RETURN_IF_ERROR(mark_strings(tools, tokenizer_, mark));
  const bool no_tools = !tools.is_array() || tools.empty();
  base_["tools"] = no_tools ? OrderedJson() : std::move(tools);
  base_["documents"] = OrderedJson();
  base_["add_generation_prompt"] = input_.add_generation_prompt;
  base_["bos_token"] = std::string(tokenizer_.token_bytes(tokenizer_.bos()));
  base_["eos_token"] = std::string(tokenizer_.token_bytes(tokenizer_.eos()));
  return {};
}

OrderedJson Renderer::message_json(size_t index, std::string content) const {
  const PreparedMessage& message = messages_[index];
  const auto marked = [&](const std::string& text) {
    Result<std::string> out =
        tokenizer_.mark_control_tokens(utf8_repair(text), conversation_.marks.control);
    return out.ok() ? std::move(out).value() : std::string();
  };
  OrderedJson json = OrderedJson::object();
  json["role"] = std::string(role_name(message.role));
  json["content"] =
      message.null_content && content.empty() ? OrderedJson() : OrderedJson(std::move(content));
  if (!message.name.empty()) json["name"] = marked(message.name);
  if (!message.tool_call_id.empty()) json["tool_call_id"] = marked(message.tool_call_id);
  if (!calls_[index].empty()) json["tool_calls"] = calls_[index];
  return json;
}

Result<std::string> Renderer::render(Placement placement, const std::set<size_t>& excluded) const {
  OrderedJson context = base_;
  OrderedJson messages = OrderedJson::array();
  size_t piece_index = 0;
  for (size_t i = 0; i < messages_.size(); ++i) {
    std::string content;
    for (size_t n = 0; n < messages_[i].pieces.size(); ++n, ++piece_index) {
      const FlatPiece& piece = conversation_.pieces[piece_index];
      const bool plain =
          placement == Placement::kNone || !piece.tracked || excluded.contains(piece_index);
      content += plain ? piece.text : wrap(piece, piece_index, conversation_.marks, placement);
    }
    messages.push_back(message_json(i, std::move(content)));
  }
  context["messages"] = std::move(messages);
  return program_.render(context.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

MarkedRender Renderer::strip(std::string_view rendered) const {
  const Marks& marks = conversation_.marks;
  constexpr size_t kUnset = SIZE_MAX;
  std::vector<size_t> begins(conversation_.pieces.size(), kUnset), ends = begins;
  std::vector<int> count(conversation_.pieces.size(), 0);
  MarkedRender out;
  out.mark = marks.control;
  size_t at = 0;
  while (at < rendered.size()) {
    // Both sentinels start with the same two bytes as few other characters do.
    const size_t lead = rendered.find("\xEF\xB7", at);
    if (lead == std::string_view::npos) break;
    out.text += rendered.substr(at, lead - at);
    const std::string_view mark = rendered.substr(lead, 3);
    const bool is_begin = mark == marks.begin;
    if (!is_begin && mark != marks.end) {
      out.text += mark;
      at = lead + mark.size();
      continue;
    }
    size_t index = 0, digit = lead + 3;
    for (; digit < rendered.size() && rendered[digit] >= '0' && rendered[digit] <= '9'; ++digit) {
      index = std::min<size_t>(index * 10 + (rendered[digit] - '0'), count.size());
    }
    const bool closed = rendered.substr(digit, 3) == mark;
    at = closed ? digit + 3 : digit;
    if (!closed || index >= count.size()) continue;
    (is_begin ? begins : ends)[index] = out.text.size();
    ++count[index];
  }
  out.text += rendered.substr(std::min(at, rendered.size()));
  size_t cursor = 0;
  for (size_t i = 0; i < count.size(); ++i) {
    if (count[i] != 2 || begins[i] == kUnset || ends[i] == kUnset || ends[i] < begins[i] ||
        begins[i] < cursor) {
      continue;
    }
    out.pieces.push_back({begins[i], ends[i], conversation_.pieces[i].message, i, false});
    cursor = ends[i];
  }
  return out;
}

std::optional<MarkedRender> Renderer::try_placement(Placement placement,
                                                    const std::set<size_t>& excluded,
                                                    const std::string& plain,
                                                    size_t& diverged) const {
  const Result<std::string> rendered = render(placement, excluded);
  diverged = 0;
  if (!rendered.ok()) return std::nullopt;
  MarkedRender out = strip(*rendered);
  if (out.text == plain) return out;
  const size_t shorter = std::min(out.text.size(), plain.size());
  const auto differ = std::mismatch(plain.begin(), plain.begin() + shorter, out.text.begin());
  const auto offset = static_cast<size_t>(differ.first - plain.begin());
  // The piece at fault is the last one that began before the texts part.
  size_t fault = 0;
  for (const PieceRange& range : out.pieces) {
    if (range.begin <= offset) fault = range.piece;
  }
  diverged = fault;
  return std::nullopt;
}

/// With sentinels inside the whitespace, what the template kept of it still belongs to the piece.
void Renderer::restore_whitespace(MarkedRender& render) const {
  for (PieceRange& range : render.pieces) {
    const std::string_view piece = conversation_.pieces[range.piece].text;
    const size_t begin = piece.find_first_not_of(kWhitespace);
    const size_t end = piece.find_last_not_of(kWhitespace) + 1;
    if (begin == std::string_view::npos) continue;
    const std::string_view before = piece.substr(0, begin);
    const std::string_view after = piece.substr(end);
    const bool kept = range.begin >= before.size() &&
                      render.text.compare(range.begin - before.size(), begin, before) == 0 &&
                      render.text.compare(range.end, after.size(), after) == 0;
    if (kept) {
      range.begin -= before.size();
      range.end += after.size();
    }
    range.altered = !kept;
  }
  for (size_t i = 1; i < render.pieces.size(); ++i) {
    render.pieces[i].begin = std::max(render.pieces[i].begin, render.pieces[i - 1].end);
  }
}

Result<MarkedRender> Renderer::run() {
  std::set<size_t> excluded;
  IKV_ASSIGN_OR_RETURN(const std::string plain, render(Placement::kNone, excluded));
  size_t fault = 0;
  if (auto found = try_placement(Placement::kOuter, excluded, plain, fault)) {
    return std::move(*found);
  }
  // Templates that look at a content's start behave differently with a sentinel there; such pieces
  // go without, one after the other.
  constexpr int kMaxTries = 6;
  for (int i = 0; i < kMaxTries; ++i) {
    if (auto found = try_placement(Placement::kInner, excluded, plain, fault)) {
      restore_whitespace(*found);
      return std::move(*found);
    }
    if (!excluded.insert(fault).second) break;
  }
  return MarkedRender{plain, conversation_.marks.control, {}};
}

}  // namespace

Result<MarkedRender> render_marked(const TemplateProgram& program, const Tokenizer& tokenizer,
                                   std::span<const PreparedMessage> messages,
                                   const RenderInput& input) {
  Renderer renderer(program, tokenizer, messages, input);
  IKV_RETURN_IF_ERROR(renderer.prepare());
  return renderer.run();
}

}  // namespace ikv
