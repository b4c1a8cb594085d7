#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace ikv {
namespace {
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kAlignment = 64;
}  // namespace

AlignedBuffer::~AlignedBuffer() {
  if (data_ == nullptr) return;
  if (mapped_bytes_ != 0) {
    munmap(data_, mapped_bytes_);
  } else {
    std::free(data_);
  }
}

Result<AlignedBuffer> AlignedBuffer::allocate(size_t num_bytes) {
  AlignedBuffer buffer;
  if (num_bytes == 0) return buffer;
  const Error refused =
      make_error(ErrorCode::kOutOfMemory,
                 "the system refused an allocation of " + std::to_string(num_bytes) + " bytes");
  if (num_bytes > (SIZE_MAX >> 1)) return refused;
  if (num_bytes >= kHugePageBytes) {
    // mmap aligns to 4 KiB; ask for one huge page more and trim, so that the hint can take effect.
    const size_t wanted = (num_bytes + 4095) / 4096 * 4096;
    void* raw = mmap(nullptr, wanted + kHugePageBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED) return refused;
    const uintptr_t begin = reinterpret_cast<uintptr_t>(raw);
    const uintptr_t aligned = (begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    if (aligned > begin) munmap(raw, aligned - begin);
    const uintptr_t end = begin + wanted + kHugePageBytes;
    if (end > aligned + wanted)
      munmap(reinterpret_cast<void*>(aligned + wanted), end - aligned - wanted);
    buffer.data_ = reinterpret_cast<std::byte*>(aligned);
    buffer.mapped_bytes_ = wanted;
    madvise(buffer.data_, wanted, MADV_HUGEPAGE);  // a hint: failure costs speed only
  } else {
    const size_t rounded = (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* raw = std::aligned_alloc(kAlignment, rounded);
    if (raw == nullptr) return refused;
    std::memset(raw, 0, rounded);
    buffer.data_ = static_cast<std::byte*>(raw);
  }
  buffer.size_bytes_ = num_bytes;
  return buffer;
}

}  // namespace ikv
