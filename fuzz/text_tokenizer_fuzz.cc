// Tokenizer, stream decoder and tool-call parser over foreign bytes. The first byte chooses what
// the rest is: text for a small vocabulary, or a vocabulary of its own with a text behind it.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "text/stream_decoder.h"
#include "text/tokenizer.h"
#include "text/tool_call_parser.h"
#include "text/utf8.h"

namespace {

using namespace ikv;

void require(bool condition) {
  if (!condition) std::abort();
}

/// GPT-2's stand-in character for a byte.
std::string byte_character(int byte) {
  int code = byte;
  if (byte <= 0x20) code = 0x100 + byte;
  if (byte >= 0x7F && byte <= 0xA0) code = 0x121 + byte - 0x7F;
  if (byte == 0xAD) code = 0x143;
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

TokenizerSpec byte_level_spec(const char* pre_tokenizer) {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre_tokenizer = pre_tokenizer;
  for (int byte = 0; byte < 256; ++byte) spec.tokens.push_back(byte_character(byte));
  for (const char* merge : {"t h", "th e", "Ġ a", "Ġ Ġ", "ĠĠ ĠĠ", "Ċ Ċ", "Ã ¤", "1 2"}) {
    spec.merges.emplace_back(merge);
    std::string whole(merge);
    whole.erase(whole.find(' '), 1);
    spec.tokens.push_back(whole);
  }
  spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  for (const char* control : {"<|im_start|>", "<|im_end|>"}) {
    spec.tokens.emplace_back(control);
    spec.types.push_back(TokenType::kControl);
  }
  spec.tokens.emplace_back("<tool_call>");
  spec.types.push_back(TokenType::kUserDefined);
  return spec;
}

TokenizerSpec spm_spec() {
  TokenizerSpec spec;
  spec.model = "llama";
  spec.tokens = {"<unk>", "<s>", "</s>"};
  spec.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl};
  spec.unknown = 0;
  const char* digits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + ">");
    spec.types.push_back(TokenType::kByte);
  }
  for (const char* text : {"▁", "a", "b", "ab", "▁a", "▁ab", "é", "▁▁", "ba"}) {
    spec.tokens.emplace_back(text);
    spec.types.push_back(TokenType::kNormal);
  }
  for (size_t i = 0; i < spec.tokens.size(); ++i) spec.scores.push_back(-static_cast<float>(i));
  return spec;
}

const Tokenizer& fixed_tokenizer(int which) {
  static const auto kTokenizers = [] {
    std::vector<std::shared_ptr<const Tokenizer>> out;
    for (const char* name : {"smollm", "gpt-2", "qwen2", "llama-bpe", "default"}) {
      out.push_back(std::move(Tokenizer::create(byte_level_spec(name))).value());
    }
    out.push_back(std::move(Tokenizer::create(spm_spec())).value());
    return out;
  }();
  return *kTokenizers[which % kTokenizers.size()];
}

void check_text(const Tokenizer& tokenizer, std::string_view text, bool is_spm) {
  for (bool parse_special : {false, true}) {
    const auto tokens = tokenizer.encode(text, parse_special);
    require(tokens.ok());
    StreamDecoder decoder(tokenizer, true);
    std::string streamed;
    for (TokenId token : *tokens) {
      const std::string delta = decoder.push(token);
      require(utf8_repair(delta) == delta);
      require(parse_special || !tokenizer.is_control(token));
      streamed += delta;
    }
    streamed += decoder.finish();
    const auto decoded = tokenizer.decode(*tokens, true);
    require(decoded.ok() && *decoded == streamed);
    if (!is_spm && utf8_repair(text) == text) require(streamed == text);
  }
  const auto encoding = tokenizer.encode_with_offsets(text);
  require(encoding.ok() && std::is_sorted(encoding->ends.begin(), encoding->ends.end()));
  require(encoding->ends.empty() || encoding->ends.back() == text.size());
  const std::string valid = utf8_repair(text);
  const auto marked = tokenizer.mark_control_tokens(valid, "\xEF\xB7\x90");
  require(marked.ok());
  const auto tokens = tokenizer.encode(*marked, true);
  require(tokens.ok() && std::none_of(tokens->begin(), tokens->end(),
                                      [&](TokenId t) { return tokenizer.is_control(t); }));
}

/// Lines: tokens until an empty line, then merges until an empty line, then the text.
void check_vocabulary(std::string_view data, bool is_spm) {
  TokenizerSpec spec;
  spec.model = is_spm ? "llama" : "gpt2";
  spec.pre_tokenizer = "qwen2";
  std::vector<std::string>* target = &spec.tokens;
  while (!data.empty() && target != nullptr) {
    const size_t end = std::min(data.find('\n'), data.size());
    const std::string line(data.substr(0, end));
    data.remove_prefix(std::min(end + 1, data.size()));
    if (!line.empty()) {
      target->push_back(line);
    } else {
      target = target == &spec.tokens ? &spec.merges : nullptr;
    }
  }
  for (const std::string& token : spec.tokens) {
    const int last = static_cast<uint8_t>(token.back());
    spec.types.push_back(static_cast<TokenType>(last % 8));
    spec.scores.push_back(static_cast<float>(last % 5));
  }
  if (is_spm && !spec.tokens.empty()) spec.unknown = 0;
  const auto tokenizer = Tokenizer::create(spec);
  if (!tokenizer.ok()) {
    require(!tokenizer.error().message.empty() && tokenizer.error().code != ErrorCode::kInternal);
    return;
  }
  const auto tokens = (*tokenizer)->encode(data, true);
  require(tokens.ok());
  require((*tokenizer)->decode(*tokens, true).ok());
}

void check_tool_calls(std::string_view text) {
  ToolCallParser parser;
  std::string streamed;
  size_t calls = 0;
  for (size_t at = 0; at < text.size(); at += 3) {
    const ToolCallDelta delta = parser.push(text.substr(at, 3));
    streamed += delta.text;
    calls += delta.tool_calls.size();
  }
  const ToolCallDelta rest = parser.finish();
  streamed += rest.text;
  calls += rest.tool_calls.size();
  const ToolCallDelta whole = parse_tool_calls(text);
  require(whole.text == streamed && whole.tool_calls.size() == calls);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const int choice = data[0] % 9;
  if (choice < 6) check_text(fixed_tokenizer(choice), text, choice == 5);
  if (choice == 6) check_tool_calls(text);
  if (choice > 6) check_vocabulary(text, choice == 8);
  return 0;
}
