// AlignedBuffer: owned memory aligned for SIMD, optionally on huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <utility>

#include "base/result.h"

namespace ikv {

/// `num_bytes` of memory aligned to 64 bytes (2 MiB with a huge-page hint from that size on).
/// Move-only; contents start zeroed by the system. Not charged to any ledger: the owner does that.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept { swap(other); }
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  /// Allocates; kOutOfMemory when the system refuses.
  static Result<AlignedBuffer> allocate(size_t num_bytes);

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }

  /// The buffer seen as an array of T.
  template <typename T>
  std::span<T> as() {
    return {reinterpret_cast<T*>(data_), size_bytes_ / sizeof(T)};
  }
  template <typename T>
  std::span<const T> as() const {
    return {reinterpret_cast<const T*>(data_), size_bytes_ / sizeof(T)};
  }

 private:
  void swap(AlignedBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
  }

  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
  size_t mapped_bytes_ = 0;  // 0: from aligned operator new; else from mmap
};

}  // namespace ikv
