// Audits as JSON lines: what `--audit` writes and `intentkv explain` reads.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "intentkv/audit.h"
#include "intentkv/engine.h"
#include "intentkv/result.h"

namespace ikv {

/// Text of a few tokens that decode together; mostly of one.
struct TokenText {
  int32_t num_tokens = 1;
  std::string text;  ///< valid UTF-8
};

/// One line of an audit file.
struct AuditRecord {
  TurnAudit audit;               ///< token ids are not stored: `tokens` comes back as zeros
  std::vector<TokenText> texts;  ///< of all tokens; empty if the file holds no text
};

/// Text of tokens, control tokens included: Engine::detokenize() or a tokenizer's.
using DecodeTokens = std::function<Result<std::string>(const std::vector<int32_t>&)>;

/// The texts of an audit's tokens. Characters that are split between tokens stay whole.
std::vector<TokenText> token_texts(const DecodeTokens& decode, const std::vector<int32_t>& tokens);

/// One line's object. Neither text nor token ids unless `texts` is given.
nlohmann::ordered_json audit_to_json(const TurnAudit& audit, const std::vector<TokenText>& texts);

/// Reads what audit_to_json() made. Errors: kInvalidFile naming the field.
Result<AuditRecord> audit_from_json(const nlohmann::json& json);

/// Reads a whole file. Errors: kIo, kInvalidFile with file and line.
Result<std::vector<AuditRecord>> read_audit_file(const std::string& path);

/// A file that audits are appended to as they come. Not thread-safe.
class AuditFile {
 public:
  /// An empty path: nothing is written. The file must be writable. Errors: kIo.
  static Result<AuditFile> open(std::string path, bool with_text);

  /// True if audits are wanted.
  bool wanted() const { return !path_.empty(); }

  /// Appends one line; no audit in the result, no line. Errors: kIo.
  Status write(const Engine& engine, const GenerationResult& result) const;

 private:
  std::string path_;
  bool with_text_ = false;
};

}  // namespace ikv
