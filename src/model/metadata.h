// Typed, range-checked access to the metadata of one architecture.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gguf/reader.h"

namespace ikv {

/// Reads keys "<architecture>.<name>". Every error (kInvalidFile) names the key, what it holds and
/// what is allowed.
class ModelMetadata {
 public:
  ModelMetadata(const GgufFile& file, std::string architecture)
      : file_(file), architecture_(std::move(architecture)) {}

  bool has(std::string_view name) const;

  /// A whole number in [low, high]; without a fallback the key must be there.
  Result<int> integer(std::string_view name, int low, int high,
                      std::optional<int> fallback = std::nullopt) const;

  /// A finite number in [low, high].
  Result<float> number(std::string_view name, float low, float high,
                       std::optional<float> fallback = std::nullopt) const;

  /// A string; `fallback` if the key is absent.
  Result<std::string> text(std::string_view name, std::string_view fallback) const;

  std::string key(std::string_view name) const { return architecture_ + "." + std::string(name); }

 private:
  const GgufFile& file_;
  std::string architecture_;
};

/// general.architecture; kInvalidFile if it is missing or no string.
Result<std::string> file_architecture(const GgufFile& file);

}  // namespace ikv
