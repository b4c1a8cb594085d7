// GgufFile: a model file, every number in it checked before it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "gguf/types.h"

namespace ikv {

/// An array: strings (pointing into the file), or numbers and booleans widened to double (whole
/// numbers are exact up to 2^53).
using GgufArray = std::variant<std::vector<std::string_view>, std::vector<double>>;

/// One metadata value. All unsigned integers are uint64_t, signed int64_t, floats double. Strings
/// may hold any bytes; keys and tensor names are printable ASCII.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

/// A tensor of the file: `dims` with the contiguous dimension first, none of them zero, whole
/// blocks of `type` in a row; `data` its checked bytes, no two tensors' overlap.
struct GgufTensor {
  std::string_view name;
  WeightType type = WeightType::kF32;
  std::vector<uint64_t> dims;
  std::span<const std::byte> data;
  uint64_t file_offset = 0;  ///< of `data`, from the file's start

  /// Elements in all; fits, since the bytes that hold them do.
  uint64_t num_elements() const;
};

/// Limits beyond the format's own, which no real model comes near; they bound memory where the
/// file's size alone would not (parsing takes less than 8 bytes for each of the file).
inline constexpr uint64_t kMaxGgufKeys = 1 << 16;
inline constexpr uint64_t kMaxGgufTensors = 1 << 16;
inline constexpr uint64_t kMaxGgufArrayElements = 1 << 24;

/// A GGUF file of version 2 or 3 (ggml's docs/gguf.md). Immutable once open; may be read from
/// several threads. Names, strings and tensor data point into the file's mapping and live as long
/// as the GgufFile (moving it keeps them valid). Opening costs the metadata, not the weights.
class GgufFile {
 public:
  /// Maps and checks `path`. Errors: kNotFound, kIo, kInvalidFile (what is wrong and at which
  /// byte), kUnsupported (version, big-endian file, one part of several, nested arrays, weight
  /// type; what is supported is named).
  static Result<GgufFile> open(const std::string& path);

  /// The same from memory, which must outlive the result; `name` stands in messages.
  static Result<GgufFile> parse(std::span<const std::byte> bytes, const std::string& name);

  const std::string& path() const { return path_; }
  uint32_t version() const { return version_; }
  uint64_t file_bytes() const { return bytes_.size(); }

  /// The value of `key`, or null.
  const GgufValue* find(std::string_view key) const;

  /// Typed access; kInvalidFile if the key is missing or holds something else (what is said).
  Result<std::string_view> string(std::string_view key) const;
  Result<std::span<const std::string_view>> strings(std::string_view key) const;
  Result<std::span<const double>> numbers(std::string_view key) const;

  /// All keys in the file's order.
  std::span<const std::pair<std::string_view, GgufValue>> metadata() const { return metadata_; }

  /// By name, or null.
  const GgufTensor* find_tensor(std::string_view name) const;

  /// All tensors in the file's order.
  std::span<const GgufTensor> tensors() const { return tensors_; }

  /// Gives a tensor's pages back to the system (see MappedFile::release()); nothing for parse().
  void release(const GgufTensor& tensor) const;

 private:
  friend class GgufParser;
  Error wrong_type(std::string_view key, std::string_view expected) const;

  MappedFile file_;
  std::span<const std::byte> bytes_;
  std::string path_;
  uint32_t version_ = 0;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::unordered_map<std::string_view, size_t> metadata_index_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

/// What a value is, for messages: "a string", "an array of 3 numbers".
std::string describe_gguf_value(const GgufValue& value);

}  // namespace ikv
