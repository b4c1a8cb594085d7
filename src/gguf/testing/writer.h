// GgufWriter: makes GGUF files in memory, for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/types.h"

namespace ikv::testing {

/// Collects metadata and tensors and lays them out as a GGUF file. Checks nothing: tests write
/// broken files with it too. Setting a key or a tensor again replaces it, at the end.
class GgufWriter {
 public:
  /// GGUF's numbers of metadata types, for set_raw().
  enum ValueType : uint32_t {
    kUint8 = 0,
    kInt8 = 1,
    kUint16 = 2,
    kInt16 = 3,
    kUint32 = 4,
    kInt32 = 5,
    kFloat32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kUint64 = 10,
    kInt64 = 11,
    kFloat64 = 12,
  };

  void set_u32(const std::string& key, uint32_t value);
  void set_u64(const std::string& key, uint64_t value);
  void set_i32(const std::string& key, int32_t value);
  void set_f32(const std::string& key, float value);
  void set_bool(const std::string& key, bool value);
  void set_string(const std::string& key, std::string_view value);
  void set_strings(const std::string& key, const std::vector<std::string>& values);
  void set_i32s(const std::string& key, const std::vector<int32_t>& values);
  void set_f32s(const std::string& key, const std::vector<float>& values);

  /// `bytes` as they are, behind any type number.
  void set_raw(const std::string& key, uint32_t type, std::string bytes);
  void erase(const std::string& key);

  /// Where `type` stands in the file, `data` is written as it is.
  struct Tensor {
    std::string name;
    WeightType type = WeightType::kF32;
    std::vector<uint64_t> dims;  ///< contiguous dimension first
    std::vector<std::byte> data;
  };
  void add_tensor(Tensor tensor);
  void erase_tensor(const std::string& name);
  Tensor* find_tensor(const std::string& name);

  /// Writes this offset into the file, wherever the data really stand.
  void set_tensor_offset(const std::string& name, uint64_t offset);

  /// The default is 3. The layout is the same for all.
  void set_version(uint32_t version) { version_ = version; }

  /// How tensors are aligned; general.alignment is the caller's to set.
  void set_alignment(size_t alignment) { alignment_ = alignment; }

  /// The file's bytes.
  std::vector<std::byte> finish() const;

 private:
  struct Entry {
    std::string key;
    uint32_t type;
    std::string bytes;
  };
  std::vector<Entry> entries_;
  std::vector<Tensor> tensors_;
  std::map<std::string, uint64_t> offsets_;
  uint32_t version_ = 3;
  size_t alignment_ = 32;
};

/// `value`'s bytes, for GgufWriter::set_raw(); a string with its length before it.
std::string gguf_bytes(uint8_t value);
std::string gguf_bytes(uint32_t value);
std::string gguf_bytes(uint64_t value);
std::string gguf_bytes(std::string_view text);

/// Writes `bytes` to `path`. Errors: kIo.
Status write_file(const std::string& path, const std::vector<std::byte>& bytes);

}  // namespace ikv::testing
