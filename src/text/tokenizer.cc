#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/native.h"
#include "text/pre_tokenizers.h"
#include "text/utf8.h"

namespace ikv {
namespace {

constexpr std::string_view kSpmSpace = "\xE2\x96\x81";  // U+2581
constexpr size_t kMaxVocab = size_t{1} << 24;

/// Names of end marks; a control token so called ends a reply even when the file's metadata only
/// declares another.
constexpr std::array<std::string_view, 9> kEndMarks = {
    "<|im_end|>",    "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",     "<|end_of_text|>",
    "<end_of_turn>", "<|end|>",       "<EOT>",      "<|end_of_turn|>"};

/// The byte for which a code point stands in GPT-2's byte alphabet, or -1.
int byte_of_code_point(uint32_t code) {
  if ((code >= 0x21 && code <= 0x7E) || (code >= 0xA1 && code <= 0xAC) ||
      (code >= 0xAE && code <= 0xFF)) {
    return static_cast<int>(code);
  }
  if (code >= 0x100 && code <= 0x120) return static_cast<int>(code - 0x100);
  if (code >= 0x121 && code <= 0x142) return static_cast<int>(code - 0x121 + 0x7F);
  if (code == 0x143) return 0xAD;
  return -1;
}

/// The bytes of a byte-level token; characters outside the alphabet stand for themselves.
void append_byte_level(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const std::string_view character = text.substr(0, step.num_bytes);
    int byte = -1;
    if (step.valid && step.num_bytes == 1) byte = byte_of_code_point(static_cast<uint8_t>(text[0]));
    if (step.valid && step.num_bytes == 2) {
      byte = byte_of_code_point(((text[0] & 0x1Fu) << 6) | (text[1] & 0x3Fu));
    }
    if (byte >= 0) {
      out.push_back(static_cast<char>(byte));
    } else {
      out += character;
    }
    text.remove_prefix(step.num_bytes);
  }
}

void append_spm(std::string_view text, std::string& out) {
  for (size_t at = text.find(kSpmSpace); at != std::string_view::npos; at = text.find(kSpmSpace)) {
    out += text.substr(0, at);
    out += ' ';
    text.remove_prefix(at + kSpmSpace.size());
  }
  out += text;
}

/// The byte of "<0xAB>", or -1.
int byte_token_value(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  int value = 0;
  for (char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

Status check_spec(const TokenizerSpec& spec) {
  const size_t size = spec.tokens.size();
  if (spec.model != "gpt2" && spec.model != "llama") {
    return unsupported("the tokenizer model '" + spec.model +
                       "' is not supported; supported: gpt2, llama");
  }
  if (size == 0) return invalid_file("the vocabulary is empty");
  if (size > kMaxVocab) return invalid_file("the vocabulary has more than 2^24 tokens");
  if (spec.types.size() != size) {
    return invalid_file("the vocabulary has " + std::to_string(size) + " tokens but " +
                        std::to_string(spec.types.size()) + " token types");
  }
  const std::pair<const char*, TokenId> ids[] = {
      {"BOS", spec.bos}, {"EOS", spec.eos},         {"EOT", spec.eot},
      {"EOM", spec.eom}, {"unknown", spec.unknown}, {"padding", spec.padding}};
  for (const auto& [name, id] : ids) {
    if (id < kNoToken || id >= static_cast<int64_t>(size)) {
      return invalid_file(std::string("the id of the ") + name + " token is " + std::to_string(id) +
                          ", outside the vocabulary of " + std::to_string(size));
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::create(TokenizerSpec spec) {
  if (spec.types.empty()) spec.types.assign(spec.tokens.size(), TokenType::kNormal);
  IKV_RETURN_IF_ERROR(check_spec(spec));
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer());
  IKV_RETURN_IF_ERROR(tokenizer->build_native(spec));
  tokenizer->types_ = spec.types;
  tokenizer->bos_ = spec.bos;
  tokenizer->eos_ = spec.eos;
  tokenizer->eot_ = spec.eot;
  tokenizer->padding_ = spec.padding;
  tokenizer->unknown_ = spec.unknown;
  tokenizer->build_pieces(spec);
  tokenizer->build_specials(spec);
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Tokenizer::~Tokenizer() {
  ikv_tokenizer_free(native_);
}

Status Tokenizer::build_native(const TokenizerSpec& spec) {
  const bool is_spm = spec.model == "llama";
  PreTokenizer pre_tokenizer;
  if (!is_spm) {
    IKV_ASSIGN_OR_RETURN(pre_tokenizer, find_pre_tokenizer(spec.pre_tokenizer));
  }
  add_bos_ = spec.add_bos.value_or(is_spm || pre_tokenizer.default_add_bos) && spec.bos >= 0;
  const auto slices = [](const auto& texts) {
    std::vector<IkvSlice> out;
    out.reserve(texts.size());
    for (const auto& text : texts) out.push_back(native::slice(text));
    return out;
  };
  const std::vector<IkvSlice> tokens = slices(spec.tokens);
  const std::vector<IkvSlice> merges = slices(spec.merges);
  const std::vector<IkvSlice> patterns = slices(pre_tokenizer.split_patterns);
  if (is_spm && spec.scores.size() != spec.tokens.size()) {
    return invalid_file("the vocabulary has " + std::to_string(spec.tokens.size()) +
                        " tokens but " + std::to_string(spec.scores.size()) + " scores");
  }
  static_assert(sizeof(TokenType) == sizeof(int32_t));
  IkvTokenizerSpec native_spec{};
  native_spec.kind = is_spm ? IKV_TOKENIZER_SPM : IKV_TOKENIZER_BYTE_BPE;
  native_spec.tokens = tokens.data();
  native_spec.types = reinterpret_cast<const int32_t*>(spec.types.data());
  native_spec.scores = is_spm ? spec.scores.data() : nullptr;
  native_spec.num_tokens = tokens.size();
  native_spec.merges = merges.data();
  native_spec.num_merges = is_spm ? 0 : merges.size();
  native_spec.split_patterns = patterns.data();
  native_spec.num_split_patterns = patterns.size();
  native_spec.ignore_merges = pre_tokenizer.ignore_merges;
  native_spec.add_space_prefix = spec.add_space_prefix.value_or(true);
  native_spec.unknown_id = spec.unknown;
  IkvText error{};
  const int32_t status = ikv_tokenizer_new(&native_spec, &native_, &error);
  if (status != IKV_TEXT_OK) {
    return native::failure(status, error, ErrorCode::kInvalidFile, "tokenizer: ");
  }
  return {};
}

void Tokenizer::build_pieces(const TokenizerSpec& spec) {
  const bool is_spm = spec.model == "llama";
  piece_begin_.reserve(spec.tokens.size() + 1);
  piece_begin_.push_back(0);
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const std::string& text = spec.tokens[i];
    const TokenType type = types_[i];
    const int byte = is_spm && type == TokenType::kByte ? byte_token_value(text) : -1;
    if (byte >= 0) {
      piece_bytes_.push_back(static_cast<char>(byte));
    } else if (type == TokenType::kControl || type == TokenType::kUnknown ||
               type == TokenType::kUserDefined) {
      piece_bytes_ += text;
    } else if (is_spm) {
      append_spm(text, piece_bytes_);
    } else {
      append_byte_level(text, piece_bytes_);
    }
    piece_begin_.push_back(static_cast<uint32_t>(piece_bytes_.size()));
  }
}

void Tokenizer::build_specials(const TokenizerSpec& spec) {
  sorted_texts_.reserve(spec.tokens.size());
  for (size_t i = 0; i < spec.tokens.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    sorted_texts_.emplace_back(spec.tokens[i], id);
    if (is_special(id)) max_special_bytes_ = std::max(max_special_bytes_, spec.tokens[i].size());
  }
  std::sort(sorted_texts_.begin(), sorted_texts_.end());
  ends_generation_.assign(spec.tokens.size(), false);
  for (TokenId id : {spec.eos, spec.eot, spec.eom}) {
    if (id >= 0) ends_generation_[id] = true;
  }
  for (std::string_view mark : kEndMarks) {
    const TokenId id = find_token(mark);
    if (id >= 0 && is_control(id)) ends_generation_[id] = true;
  }
}

Result<Encoding> Tokenizer::encode_impl(std::string_view text, bool parse_special,
                                        std::span<const ByteRange> literal) const {
  std::vector<IkvRange> ranges;
  ranges.reserve(literal.size());
  for (const ByteRange& range : literal) ranges.push_back({range.begin, range.end});
  IkvTokens tokens{};
  IkvText error{};
  const int32_t status = ikv_tokenizer_encode(native_, native::slice(text), parse_special,
                                              ranges.data(), ranges.size(), &tokens, &error);
  if (status != IKV_TEXT_OK) {
    return native::failure(status, error, ErrorCode::kInvalidArgument, "tokenizer: ");
  }
  Encoding encoding;
  if (tokens.len > 0) {
    encoding.tokens.assign(tokens.ids, tokens.ids + tokens.len);
    encoding.ends.assign(tokens.ends, tokens.ends + tokens.len);
  }
  ikv_tokens_free(tokens);
  return encoding;
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, bool parse_special) const {
  IKV_ASSIGN_OR_RETURN(Encoding encoding, encode_impl(text, parse_special, {}));
  return std::move(encoding.tokens);
}

Result<Encoding> Tokenizer::encode_with_offsets(std::string_view text,
                                                std::span<const ByteRange> literal) const {
  return encode_impl(text, true, literal);
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> tokens, bool with_control) const {
  std::string bytes;
  for (TokenId token : tokens) {
    if (token < 0 || token >= vocab_size()) {
      return invalid_argument("token id " + std::to_string(token) +
                              " is outside the vocabulary of " + std::to_string(vocab_size()));
    }
    if (with_control || !is_control(token)) bytes += token_bytes(token);
  }
  return utf8_repair(bytes);
}

std::string_view Tokenizer::token_bytes(TokenId token) const {
  if (token < 0 || token >= vocab_size()) return {};
  return std::string_view(piece_bytes_)
      .substr(piece_begin_[token], piece_begin_[token + 1] - piece_begin_[token]);
}

TokenId Tokenizer::find_token(std::string_view text) const {
  const auto less = [](const auto& entry, std::string_view value) { return entry.first < value; };
  const auto found = std::lower_bound(sorted_texts_.begin(), sorted_texts_.end(), text, less);
  return found != sorted_texts_.end() && found->first == text ? found->second : kNoToken;
}

Result<std::string> Tokenizer::mark_control_tokens(std::string_view text,
                                                   std::string_view mark) const {
  IkvText out{};
  IkvText error{};
  const int32_t status =
      ikv_tokenizer_mark_control(native_, native::slice(text), native::slice(mark), &out, &error);
  if (status != IKV_TEXT_OK) {
    return native::failure(status, error, ErrorCode::kInvalidArgument, "tokenizer: ");
  }
  return native::take(out);
}

bool Tokenizer::is_control(TokenId token) const {
  if (token < 0 || token >= vocab_size()) return false;
  return types_[token] == TokenType::kControl || types_[token] == TokenType::kUnknown;
}

bool Tokenizer::is_special(TokenId token) const {
  return is_control(token) ||
         (token >= 0 && token < vocab_size() && types_[token] == TokenType::kUserDefined);
}

bool Tokenizer::is_end_of_generation(TokenId token) const {
  return token >= 0 && token < vocab_size() && ends_generation_[token];
}

}  // namespace ikv
