#include "file_io.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace ikv {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

Error io_error(const std::string& what) {
  return make_error(ErrorCode::kIo, what + ": " + std::strerror(errno));
}

Result<std::string> read_all(FILE* file, const std::string& name) {
  std::string text;
  char buffer[65536];
  size_t size = 0;
  while ((size = std::fread(buffer, 1, sizeof buffer, file)) > 0) text.append(buffer, size);
  if (std::ferror(file) != 0) return io_error("cannot read " + name);
  return text;
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  File file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return io_error("cannot open '" + path + "'");
  return read_all(file.get(), "'" + path + "'");
}

Result<std::string> read_standard_input() {
  return read_all(stdin, "standard input");
}

Status write_file(const std::string& path, const std::string& text) {
  File file(std::fopen(path.c_str(), "wb"), &std::fclose);
  if (!file) return io_error("cannot write '" + path + "'");
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  if (!written || std::fclose(file.release()) != 0) return io_error("cannot write '" + path + "'");
  return {};
}

}  // namespace ikv
