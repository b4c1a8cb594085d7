// Grammars: which tokens a constrained reply may take next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "text/tokenizer.h"

struct IkvGrammarVocabulary;
struct IkvGrammar;

namespace ikv {

/// How a grammar is written: a JSON schema, a regular expression (of the whole reply), or
/// llguidance's dialect of Lark.
enum class GrammarKind { kJsonSchema, kRegex, kLark };

/// One reply's position in a grammar. Not thread-safe.
class Grammar {
 public:
  /// Bits of the tokens that may come next (lowest bit of word 0 is token 0), as Sampler::sample()
  /// takes them. Where the reply must end, only tokens that end it. kInvalidArgument when the
  /// grammar became too complex to follow. About 0.05 ms for 49k tokens. Valid until the next call.
  Result<std::span<const uint32_t>> allowed();

  /// Takes the reply's next token. One that allowed() forbids is kInvalidArgument, and the grammar
  /// is of no use afterwards.
  Status accept(TokenId token);

  /// Whether the reply so far is complete.
  Result<bool> may_end();

  /// An independent copy at the same position.
  Result<Grammar> copy() const;

 private:
  friend class GrammarCompiler;
  struct Deleter {
    void operator()(IkvGrammar* native) const;
  };
  Grammar(IkvGrammar* native, std::shared_ptr<const IkvGrammarVocabulary> vocabulary,
          int32_t vocab_size)
      : vocabulary_(std::move(vocabulary)),
        native_(native),
        words_((static_cast<size_t>(vocab_size) + 31) / 32) {}

  std::shared_ptr<const IkvGrammarVocabulary> vocabulary_;  // outlives native_
  std::unique_ptr<IkvGrammar, Deleter> native_;
  std::vector<uint32_t> words_;
};

/// Compiles grammars for one vocabulary. Thread-safe.
class GrammarCompiler {
 public:
  /// Prepares the vocabulary; about 50 ms for 49k tokens. kUnsupported if no token ends a reply.
  static Result<GrammarCompiler> create(const Tokenizer& tokenizer);

  /// A grammar at its start. kInvalidArgument with the fault of `source`.
  Result<Grammar> compile(GrammarKind kind, std::string_view source) const;

 private:
  GrammarCompiler(std::shared_ptr<const IkvGrammarVocabulary> vocabulary, int32_t vocab_size)
      : vocabulary_(std::move(vocabulary)), vocab_size_(vocab_size) {}

  std::shared_ptr<const IkvGrammarVocabulary> vocabulary_;
  int32_t vocab_size_;
};

}  // namespace ikv
