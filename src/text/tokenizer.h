// Tokenizer: text to tokens and back, for the vocabularies of GGUF files.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"

struct IkvTokenizer;

namespace ikv {

/// What a token is; the numbers of GGUF's tokenizer.ggml.token_type.
enum class TokenType : int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

/// A vocabulary with its rules, as the file says. Ids of -1 are absent.
struct TokenizerSpec {
  std::string model;                ///< "gpt2" (byte-level BPE) or "llama" (SentencePiece BPE)
  std::string pre_tokenizer;        ///< gpt2 only: smollm, gpt-2, qwen2, llama-bpe, default
  std::vector<std::string> tokens;  ///< texts as in the file, index = id
  std::vector<TokenType> types;     ///< one per token; empty: all normal
  std::vector<float> scores;        ///< llama: one per token
  std::vector<std::string> merges;  ///< gpt2: "left right", best first
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId eot = kNoToken;  ///< end of a chat turn
  TokenId eom = kNoToken;  ///< end of a message that waits for a tool
  TokenId unknown = kNoToken;
  TokenId padding = kNoToken;
  std::optional<bool> add_bos;           ///< absent: the model kind's habit
  std::optional<bool> add_space_prefix;  ///< llama only; absent: true
};

/// A byte range [begin, end) of a text.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// Tokens, and for each the byte offset of the text where it ends. Tokens tile valid UTF-8.
struct Encoding {
  std::vector<TokenId> tokens;
  std::vector<uint64_t> ends;
};

/// Immutable after creation; every function is thread-safe. The merging is done by Hugging Face's
/// tokenizers library; results equal llama.cpp's.
class Tokenizer {
 public:
  /// Checks and builds. Errors: kUnsupported (model or pre-tokenizer, with the supported list),
  /// kInvalidFile (vocabulary that contradicts itself). About 50 ms for 49k tokens, 1 s for a
  /// SentencePiece vocabulary of 262k.
  static Result<std::shared_ptr<const Tokenizer>> create(TokenizerSpec spec);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Text to tokens; any bytes are accepted, invalid UTF-8 becomes byte tokens or U+FFFD as the
  /// vocabulary has it. `parse_special`: control tokens written in the text become control tokens.
  /// No BOS is added. A few MB/s.
  Result<std::vector<TokenId>> encode(std::string_view text, bool parse_special) const;

  /// As encode() with parse_special, with offsets; a control token that overlaps one of the
  /// `literal` ranges (ascending, disjoint) stays text.
  Result<Encoding> encode_with_offsets(std::string_view text,
                                       std::span<const ByteRange> literal = {}) const;

  /// Tokens to valid UTF-8 (broken parts become U+FFFD). Control tokens are left out unless
  /// `with_control`. Ids outside the vocabulary: kInvalidArgument.
  Result<std::string> decode(std::span<const TokenId> tokens, bool with_control = false) const;

  /// The bytes a token stands for (perhaps part of a character); a control token's is its name.
  /// Empty for an id outside the vocabulary. Valid as long as the tokenizer.
  std::string_view token_bytes(TokenId token) const;

  /// The id whose text in the file is exactly `text`, or kNoToken.
  TokenId find_token(std::string_view text) const;

  /// Copy of a text with `mark` after the first character of every control token written in it;
  /// such a text holds no control token. `text` must be valid UTF-8.
  Result<std::string> mark_control_tokens(std::string_view text, std::string_view mark) const;

  int32_t vocab_size() const { return static_cast<int32_t>(types_.size()); }
  bool is_control(TokenId token) const;
  /// Whether a model that yields this token has ended its reply: eos, eot, eom, and control tokens
  /// whose name is a known end mark (files often declare only one of them).
  bool is_end_of_generation(TokenId token) const;
  TokenId bos() const { return bos_; }
  TokenId eos() const { return eos_; }
  TokenId eot() const { return eot_; }
  TokenId padding() const { return padding_; }
  TokenId unknown() const { return unknown_; }
  /// Whether a prompt shall start with BOS.
  bool add_bos() const { return add_bos_; }
  /// Bytes of the longest control or user-defined token.
  size_t max_special_bytes() const { return max_special_bytes_; }
  bool is_special(TokenId token) const;

 private:
  Tokenizer() = default;
  Status build_native(const TokenizerSpec& spec);
  void build_pieces(const TokenizerSpec& spec);
  void build_specials(const TokenizerSpec& spec);
  Result<Encoding> encode_impl(std::string_view text, bool parse_special,
                               std::span<const ByteRange> literal) const;

  IkvTokenizer* native_ = nullptr;
  std::vector<TokenType> types_;
  std::string piece_bytes_;            // all tokens' bytes, one after the other
  std::vector<uint32_t> piece_begin_;  // vocab_size + 1 offsets into piece_bytes_
  std::vector<bool> ends_generation_;
  std::vector<std::pair<std::string, TokenId>> sorted_texts_;
  TokenId bos_ = kNoToken;
  TokenId eos_ = kNoToken;
  TokenId eot_ = kNoToken;
  TokenId padding_ = kNoToken;
  TokenId unknown_ = kNoToken;
  bool add_bos_ = false;
  size_t max_special_bytes_ = 0;
};

}  // namespace ikv
