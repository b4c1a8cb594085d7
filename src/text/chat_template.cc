#include "text/chat_template.h"

#include <utility>

#include "text/chat_spans.h"

namespace ikv {
namespace {

constexpr size_t kCachedPrompts = 8;

constexpr std::string_view kChatMl =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

Result<RenderInput> parse_options(const ChatRenderOptions& options) {
  RenderInput input;
  input.add_generation_prompt = options.add_generation_prompt;
  if (!options.tools_json.empty()) {
    IKV_ASSIGN_OR_RETURN(input.tools, parse_json(options.tools_json, "tools"));
    if (!input.tools.is_array() && !input.tools.is_null()) {
      return invalid_argument("tools must be a JSON array of tool objects");
    }
    for (const OrderedJson& tool : input.tools) {
      if (!tool.is_object()) return invalid_argument("each tool must be a JSON object");
    }
  }
  if (!options.kwargs_json.empty()) {
    IKV_ASSIGN_OR_RETURN(input.kwargs, parse_json(options.kwargs_json, "template variables"));
    if (!input.kwargs.is_object() && !input.kwargs.is_null()) {
      return invalid_argument("template variables must be a JSON object");
    }
  }
  return input;
}

}  // namespace

struct ChatTemplate::Rendered {
  MarkedRender marked;
  FinalRender final;
};

ChatTemplate::ChatTemplate(TemplateProgram program, std::shared_ptr<const Tokenizer> tokenizer)
    : program_(std::move(program)),
      tokenizer_(std::move(tokenizer)),
      traits_(probe_template(program_, *tokenizer_)),
      cache_(std::make_unique<PromptCache>(tokenizer_, kCachedPrompts)) {}

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::create(
    std::optional<std::string> source, std::shared_ptr<const Tokenizer> tokenizer) {
  const bool is_fallback = !source.has_value();
  if (is_fallback) {
    for (std::string_view mark : {"<|im_start|>", "<|im_end|>"}) {
      if (!tokenizer->is_special(tokenizer->find_token(mark))) {
        return unsupported(
            "the model file has no chat template and its vocabulary has no ChatML marks, so how it "
            "expects messages is unknown; use it with plain prompts, or a file with a template");
      }
    }
    source = std::string(kChatMl);
  }
  IKV_ASSIGN_OR_RETURN(TemplateProgram program, TemplateProgram::compile(*source));
  std::unique_ptr<ChatTemplate> out(new ChatTemplate(std::move(program), std::move(tokenizer)));
  out->is_fallback_ = is_fallback;
  return out;
}

std::string ChatTemplate::warning() const {
  std::string out;
  if (is_fallback_) {
    out +=
        "the model file has no chat template: ChatML is assumed, since the vocabulary has its "
        "marks. ";
  }
  if (!traits_.has_tools) {
    out +=
        "the chat template has no tools: they are described in the system message and called in "
        "<tool_call> tags. ";
  }
  if (!traits_.has_system) {
    out +=
        "the chat template has no system role: system messages are put before the first user "
        "message. ";
  }
  if (!out.empty()) out.pop_back();
  return out;
}

Result<ChatTemplate::Rendered> ChatTemplate::render_spans(std::span<const Message> messages,
                                                          const ChatRenderOptions& options) const {
  IKV_ASSIGN_OR_RETURN(const RenderInput input, parse_options(options));
  const std::vector<PreparedMessage> prepared = prepare_messages(messages, input.tools, traits_);
  IKV_ASSIGN_OR_RETURN(MarkedRender marked, render_marked(program_, *tokenizer_, prepared, input));
  std::vector<TextSpan> spans =
      build_text_spans(marked, messages, traits_, options.add_generation_prompt);
  FinalRender final = remove_marks(marked, std::move(spans));
  return Rendered{std::move(marked), std::move(final)};
}

Result<std::string> ChatTemplate::render(std::span<const Message> messages,
                                         const ChatRenderOptions& options) const {
  IKV_ASSIGN_OR_RETURN(Rendered rendered, render_spans(messages, options));
  return std::move(rendered.final.text);
}

Result<TokenizedChat> ChatTemplate::tokenize(std::span<const Message> messages,
                                             const ChatRenderOptions& options) const {
  IKV_ASSIGN_OR_RETURN(const Rendered rendered, render_spans(messages, options));
  const FinalRender& final = rendered.final;
  IKV_ASSIGN_OR_RETURN(Encoding encoding, cache_->encode(final.text, final.literal));
  TokenizedChat out;
  out.spans = token_spans(final.spans, encoding.ends);
  out.tokens = std::move(encoding.tokens);
  const TokenId bos = tokenizer_->bos();
  if (tokenizer_->add_bos() && (out.tokens.empty() || out.tokens.front() != bos)) {
    out.tokens.insert(out.tokens.begin(), bos);
    for (Span& span : out.spans) {
      ++span.begin;
      ++span.end;
    }
    out.spans.insert(out.spans.begin(), Span{0, 1, -1, Role::kSystem, SpanPart::kHeader, false});
  }
  return out;
}

}  // namespace ikv
