#include "text/grammar.h"

#include "text/native.h"

namespace ikv {

void Grammar::Deleter::operator()(IkvGrammar* native) const {
  ikv_grammar_free(native);
}

Result<std::span<const uint32_t>> Grammar::allowed() {
  IkvText error{};
  const int32_t status = ikv_grammar_mask(native_.get(), words_.data(), words_.size(), &error);
  if (status != IKV_TEXT_OK) {
    return native::failure(status, error, ErrorCode::kInvalidArgument, "grammar: ");
  }
  return std::span<const uint32_t>(words_);
}

Status Grammar::accept(TokenId token) {
  IkvText error{};
  const int32_t status = ikv_grammar_accept(native_.get(), token, &error);
  if (status != IKV_TEXT_OK) {
    return native::failure(status, error, ErrorCode::kInvalidArgument, "grammar: ");
  }
  return {};
}

Result<bool> Grammar::may_end() {
  IkvText error{};
  int32_t out = 0;
  const int32_t status = ikv_grammar_may_end(native_.get(), &out, &error);
  if (status != IKV_TEXT_OK) {
    return native::failure(status, error, ErrorCode::kInvalidArgument, "grammar: ");
  }
  return out != 0;
}

Result<Grammar> Grammar::copy() const {
  IkvText error{};
  IkvGrammar* out = nullptr;
  const int32_t status = ikv_grammar_copy(native_.get(), &out, &error);
  if (status != IKV_TEXT_OK) {
    return native::failure(status, error, ErrorCode::kInternal, "grammar: ");
  }
  return Grammar(out, vocabulary_, static_cast<int32_t>(words_.size() * 32));
}

Result<GrammarCompiler> GrammarCompiler::create(const Tokenizer& tokenizer) {
  std::vector<IkvSlice> tokens;
  std::vector<uint8_t> control;
  std::vector<int32_t> ends;
  for (TokenId token = 0; token < tokenizer.vocab_size(); ++token) {
    tokens.push_back(native::slice(tokenizer.token_bytes(token)));
    control.push_back(tokenizer.is_control(token));
    if (tokenizer.is_end_of_generation(token)) ends.push_back(token);
  }
  if (ends.empty()) {
    return unsupported("the vocabulary has no token that ends a reply, which grammars need");
  }
  IkvText error{};
  IkvGrammarVocabulary* out = nullptr;
  const int32_t status = ikv_grammar_vocabulary_new(tokens.data(), control.data(), tokens.size(),
                                                    ends.data(), ends.size(), &out, &error);
  if (status != IKV_TEXT_OK) {
    return native::failure(status, error, ErrorCode::kInvalidFile, "grammar vocabulary: ");
  }
  return GrammarCompiler({out, [](IkvGrammarVocabulary* v) { ikv_grammar_vocabulary_free(v); }},
                         tokenizer.vocab_size());
}

Result<Grammar> GrammarCompiler::compile(GrammarKind kind, std::string_view source) const {
  static_assert(static_cast<int>(GrammarKind::kJsonSchema) == IKV_GRAMMAR_JSON_SCHEMA);
  static_assert(static_cast<int>(GrammarKind::kRegex) == IKV_GRAMMAR_REGEX);
  static_assert(static_cast<int>(GrammarKind::kLark) == IKV_GRAMMAR_LARK);
  IkvText error{};
  IkvGrammar* out = nullptr;
  const int32_t status = ikv_grammar_new(vocabulary_.get(), static_cast<int32_t>(kind),
                                         native::slice(source), &out, &error);
  if (status != IKV_TEXT_OK) {
    return native::failure(status, error, ErrorCode::kInvalidArgument, "grammar: ");
  }
  return Grammar(out, vocabulary_, vocab_size_);
}

}  // namespace ikv
