// GgufParser: from a file's bytes to a GgufFile. Only reader.cc uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/reader.h"

namespace ikv {

/// A cursor over the bytes that checks every read against their end, and every count against what
/// the rest of the file can hold before anything is allocated. Fills `file`, whose `bytes_` and
/// `path_` are set.
class GgufParser {
 public:
  explicit GgufParser(GgufFile& file) : file_(file), bytes_(file.bytes_) {}

  /// Errors: kInvalidFile, kUnsupported; `file` is then half filled and of no use.
  Status parse();

 private:
  uint64_t bytes_left() const { return bytes_.size() - at_; }
  Error bad(const std::string& what) const;

  template <typename T>
  Result<T> read(const char* what) {
    if (bytes_left() < sizeof(T)) return bad(std::string("it ends within ") + what);
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  Result<uint64_t> read_count(const char* what, uint64_t least_bytes, uint64_t limit);
  Result<std::string_view> read_string(const char* what);
  Result<std::string_view> read_name(const char* what, uint64_t limit_bytes);
  Result<bool> read_bool();

  Status read_header();
  Status read_metadata();
  Result<GgufValue> read_value(uint32_t type);
  Result<GgufValue> read_array();
  template <typename T>
  GgufValue read_numbers(uint64_t count);
  Status check_whole_model() const;

  Status read_tensor_infos();
  Status read_dims(GgufTensor& tensor, uint64_t& num_elements);
  Result<uint64_t> read_tensor_info(GgufTensor& tensor);
  Result<uint64_t> alignment() const;
  Status place_tensors();
  Status check_overlap() const;

  GgufFile& file_;
  std::span<const std::byte> bytes_;
  uint64_t at_ = 0;
  uint64_t num_tensors_ = 0;
  uint64_t num_keys_ = 0;
  std::vector<uint64_t> tensor_bytes_;
};

}  // namespace ikv
