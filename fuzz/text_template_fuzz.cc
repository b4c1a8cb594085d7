// Chat templates and messages over foreign bytes. Fields are divided by a 0x1F byte: the template,
// then messages, whose first byte says the role and kind. An empty template is ChatML.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using namespace ikv;

void require(bool condition) {
  if (!condition) std::abort();
}

/// All ASCII characters and ChatML's marks; other bytes are dropped by encoding, which is fine
/// here.
std::shared_ptr<const Tokenizer> tokenizer() {
  static const auto kTokenizer = [] {
    TokenizerSpec spec;
    spec.model = "gpt2";
    spec.pre_tokenizer = "qwen2";
    for (char c = '!'; c <= '~'; ++c) spec.tokens.emplace_back(1, c);
    spec.tokens.emplace_back("Ġ");
    spec.tokens.emplace_back("Ċ");
    spec.types.assign(spec.tokens.size(), TokenType::kNormal);
    for (const char* control : {"<|im_start|>", "<|im_end|>", "<", "m_"}) {
      spec.tokens.emplace_back(control);
      spec.types.push_back(TokenType::kControl);
    }
    spec.bos = 0;
    spec.eos = 1;
    return std::move(Tokenizer::create(spec)).value();
  }();
  return kTokenizer;
}

std::vector<std::string> fields(std::string_view data) {
  std::vector<std::string> out(1);
  for (char c : data) {
    if (c == 0x1F) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

Message message(const std::string& field) {
  Message out;
  if (field.empty()) return out;
  const auto kind = static_cast<uint8_t>(field[0]);
  out.role = static_cast<Role>(kind & 3);
  const std::string rest = field.substr(1);
  if ((kind & 4) == 0) out.content = rest;
  if ((kind & 8) != 0) out.tool_calls.push_back({"call", rest, rest});
  if ((kind & 16) != 0) out.tool_call_id = rest;
  return out;
}

void check(const ChatTemplate& chat_template, const std::vector<Message>& messages,
           const ChatRenderOptions& options) {
  const auto text = chat_template.render(messages, options);
  const auto chat = chat_template.tokenize(messages, options);
  if (!text.ok() || !chat.ok()) {
    const Error& error = text.ok() ? chat.error() : text.error();
    require(!error.message.empty() && error.code != ErrorCode::kInternal);
    return;
  }
  require(utf8_repair(*text) == *text);
  LogicalPos at = 0;
  for (const Span& span : chat->spans) {
    require(span.begin == at && span.end > span.begin);
    at = span.end;
  }
  require(at == static_cast<LogicalPos>(chat->tokens.size()));
}

/// With ChatML, the number of control tokens follows from the number of messages alone.
void check_injection(const ChatTemplate& chat_template, const std::vector<Message>& messages) {
  const auto count = [&](std::vector<Message> list) {
    const auto chat = chat_template.tokenize(list, {});
    require(chat.ok());
    return std::count_if(chat->tokens.begin(), chat->tokens.end(),
                         [](TokenId t) { return tokenizer()->is_control(t); });
  };
  std::vector<Message> benign = messages;
  for (Message& item : benign) {
    item.content = "x";
    for (ToolCall& call : item.tool_calls) {
      call.name = "x";
      call.arguments_json = "x";
    }
  }
  require(count(messages) == count(benign));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = fields({reinterpret_cast<const char*>(data), size});
  std::vector<Message> messages;
  for (size_t i = 1; i < parts.size() && i < 12; ++i) messages.push_back(message(parts[i]));
  if (parts[0].empty()) {
    static const auto kChatMl = std::move(ChatTemplate::create(std::nullopt, tokenizer())).value();
    check_injection(*kChatMl, messages);
    const std::string tools = parts.back();
    check(*kChatMl, messages, {tools, tools, size % 2 == 0});
    return 0;
  }
  const auto created = ChatTemplate::create(parts[0], tokenizer());
  if (!created.ok()) {
    require(created.error().code == ErrorCode::kInvalidFile);
    return 0;
  }
  check(**created, messages, {"", "", size % 2 == 0});
  return 0;
}
