#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace ikv {

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_bytes_);
}

Result<MappedFile> MappedFile::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    return invalid_argument("the file name contains a NUL byte");
  }
  // O_NONBLOCK: opening a FIFO must not hang.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return make_error(code, "cannot open '" + path + "': " + std::strerror(errno));
  }
  struct stat info = {};
  const int rc = fstat(fd, &info);
  const char* problem = nullptr;
  if (rc != 0) {
    problem = std::strerror(errno);
  } else if (S_ISDIR(info.st_mode)) {
    problem = "it is a directory";
  } else if (!S_ISREG(info.st_mode)) {
    problem = "it is not a regular file";
  }
  if (problem != nullptr) {
    Error error = make_error(ErrorCode::kIo, "cannot read '" + path + "': " + problem);
    close(fd);
    return error;
  }
  if (info.st_size == 0) {
    close(fd);
    return invalid_file("'" + path + "' is empty");
  }
  const size_t size = static_cast<size_t>(info.st_size);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  const int map_errno = errno;
  close(fd);
  if (data == MAP_FAILED) {
    return make_error(ErrorCode::kIo, "cannot map '" + path + "': " + std::strerror(map_errno));
  }
  MappedFile file;
  file.data_ = static_cast<const std::byte*>(data);
  file.size_bytes_ = size;
  file.path_ = path;
  return file;
}

void MappedFile::release(size_t offset, size_t size) const {
  constexpr size_t kPage = 4096;
  if (data_ == nullptr || offset >= size_bytes_) return;
  const size_t end = std::min(size_bytes_, offset + size) / kPage * kPage;
  const size_t begin = (offset + kPage - 1) / kPage * kPage;
  if (begin < end) madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED);
}

}  // namespace ikv
