// ChatTemplate: conversations to prompts, and to tokens that know their message.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/message.h"
#include "core/tokenized_chat.h"
#include "text/chat_shape.h"
#include "text/prompt_cache.h"
#include "text/template_program.h"
#include "text/tokenizer.h"

namespace ikv {

/// What a rendering takes besides the messages.
struct ChatRenderOptions {
  std::string tools_json;             ///< JSON array of OpenAI tool objects; empty: none
  std::string kwargs_json;            ///< JSON object of further template variables; empty: none
  bool add_generation_prompt = true;  ///< end with the header of the reply
};

/// A model's chat format. Thread-safe; immutable but for a cache of recent prompts.
///
/// Control tokens that are written in messages, tools or variables are text in the tokens that come
/// out: no content can end its message or pose as another role. Where the template has no tools, or
/// no system role, a stated text form takes their place (see warning()).
class ChatTemplate {
 public:
  /// `source`: the Jinja template of the file; none: ChatML, if the vocabulary has ChatML's marks,
  /// with a warning; else kUnsupported. kInvalidFile for a template that does not compile.
  static Result<std::unique_ptr<ChatTemplate>> create(std::optional<std::string> source,
                                                      std::shared_ptr<const Tokenizer> tokenizer);

  /// The prompt's text. kInvalidArgument: malformed JSON, or the template refuses the messages.
  Result<std::string> render(std::span<const Message> messages,
                             const ChatRenderOptions& options) const;

  /// The prompt's tokens and spans; BOS is added if the vocabulary wants one and the template wrote
  /// none. Only what follows the last prompt with the same front is tokenised anew (rendering
  /// itself is a few milliseconds for hundreds of messages). Errors as render().
  Result<TokenizedChat> tokenize(std::span<const Message> messages,
                                 const ChatRenderOptions& options) const;

  /// The file had no template and ChatML stands in.
  bool is_fallback() const { return is_fallback_; }
  /// What a user should know about how this template is used; empty if nothing.
  std::string warning() const;
  /// Whether the template renders tools itself; else they are written in Hermes' form.
  bool has_native_tools() const { return traits_.has_tools; }
  /// Whether the model was told to call tools in `<tool_call>` tags, which ToolCallParser reads.
  bool has_hermes_calls() const { return traits_.hermes_calls; }
  bool has_system_role() const { return traits_.has_system; }

  /// Prompts remembered for the next turn, see PromptCache.
  const PromptCache& prompt_cache() const { return *cache_; }

 private:
  ChatTemplate(TemplateProgram program, std::shared_ptr<const Tokenizer> tokenizer);
  struct Rendered;
  Result<Rendered> render_spans(std::span<const Message> messages,
                                const ChatRenderOptions& options) const;

  TemplateProgram program_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  TemplateTraits traits_;
  std::unique_ptr<PromptCache> cache_;
  bool is_fallback_ = false;
};

}  // namespace ikv
