// MappedFile: a file's bytes, read-only, by mmap.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/result.h"

namespace ikv {

/// A read-only private mapping of a whole regular file. Move-only. A file that is truncated by
/// someone else while mapped raises SIGBUS on access, as with every mmap.
class MappedFile {
 public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept { swap(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    swap(other);
    return *this;
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Maps `path`. Errors: kNotFound, kIo (permission, directory, device), kInvalidFile (empty).
  static Result<MappedFile> open(const std::string& path);

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  const std::string& path() const { return path_; }

  /// Tells the system that the pages of [offset, offset + size) are not needed again soon, so that
  /// they leave the process's resident memory. Reading them later still works.
  void release(size_t offset, size_t size) const;

 private:
  void swap(MappedFile& other) {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(path_, other.path_);
  }

  const std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
  std::string path_;
};

}  // namespace ikv
