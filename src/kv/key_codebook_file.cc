#include "kv/key_codebook_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

namespace ikv {

namespace {

// Little-endian, without padding: magic, version, kind, number of layers, length of the
// fingerprint; the fingerprint; KV heads and head size of each layer; of each head its centroids,
// then its transform: channels (u16) and scales; XXH3 of all before.
constexpr char kMagic[8] = {'I', 'K', 'V', 'C', 'O', 'D', 'E', 'S'};
constexpr uint32_t kVersion = 2;

Error bad(const std::filesystem::path& path, const std::string& what) {
  return invalid_file("key codebooks " + path.string() + ": " + what +
                      "; they will be fitted again");
}

Error io_error(const std::filesystem::path& path, const char* what) {
  return make_error(ErrorCode::kIo, "key codebooks " + path.string() + ": cannot " + what + ": " +
                                        std::strerror(errno));
}

void put(std::string& out, const void* data, size_t size) {
  out.append(static_cast<const char*>(data), size);
}
void put_u32(std::string& out, uint32_t value) {
  put(out, &value, sizeof(value));
}

constexpr size_t kSubCentroids = static_cast<size_t>(kKeySubDim) * kKeyCentroids;

/// Everything before the centroids: it must be equal byte for byte for a file to be accepted.
std::string header_of(KeyCodeKind kind, const std::vector<KvLayerShape>& layers,
                      std::string_view fingerprint) {
  std::string out;
  put(out, kMagic, sizeof(kMagic));
  put_u32(out, kVersion);
  put_u32(out, static_cast<uint32_t>(kind));
  put_u32(out, static_cast<uint32_t>(layers.size()));
  put_u32(out, static_cast<uint32_t>(fingerprint.size()));
  put(out, fingerprint.data(), fingerprint.size());
  for (const KvLayerShape& layer : layers) {
    put_u32(out, static_cast<uint32_t>(layer.num_kv_heads));
    put_u32(out, static_cast<uint32_t>(layer.head_dim));
  }
  return out;
}

Status write_all(int fd, const std::string& bytes, const std::filesystem::path& path) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path, "write");
    done += static_cast<size_t>(n);
  }
  if (::fsync(fd) != 0) return io_error(path, "synchronise");
  return {};
}

}  // namespace

Result<std::filesystem::path> default_codebook_path(std::string_view fingerprint,
                                                    KeyCodeKind kind) {
  const bool clean =
      !fingerprint.empty() && std::all_of(fingerprint.begin(), fingerprint.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '-' || c == '_';
      });
  if (!clean) {
    return invalid_argument("a model fingerprint names a file: letters, digits, '-' and '_' only");
  }
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache != nullptr && *cache != '\0') {
    folder = cache;
  } else if (home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return make_error(ErrorCode::kNotFound,
                      "no folder for key codebooks: set XDG_CACHE_HOME or HOME");
  }
  const std::string suffix = kind == KeyCodeKind::kSign ? ".sign.codebook" : ".pq4.codebook";
  return folder / "intentkv" / (std::string(fingerprint) + suffix);
}

Status save_codebooks(const std::filesystem::path& path, const KeyCodebooks& books,
                      std::string_view fingerprint) {
  std::string bytes = header_of(books.kind(), books.layers(), fingerprint);
  for (size_t l = 0; l < books.layers().size(); ++l) {
    for (int h = 0; h < books.layers()[l].num_kv_heads; ++h) {
      const std::span<const float> head = books.head(static_cast<int>(l), h);
      const KeyTransform transform = books.transform(static_cast<int>(l), h);
      const size_t num_sub = transform.channel.size() / kKeySubDim;
      for (size_t m = 0; m < num_sub; ++m) {
        put(bytes, head.data() + m * KeyCodebooks::kSubFloats, kSubCentroids * sizeof(float));
      }
      put(bytes, transform.channel.data(), transform.channel.size() * sizeof(uint16_t));
      put(bytes, transform.scale.data(), transform.scale.size() * sizeof(float));
    }
  }
  const XXH64_hash_t checksum = XXH3_64bits(bytes.data(), bytes.size());
  put(bytes, &checksum, sizeof(checksum));

  std::error_code failed;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
  if (failed) {
    errno = failed.value();
    return io_error(path, "create its folder");
  }
  const std::filesystem::path temporary = path.string() + ".tmp" + std::to_string(::getpid());
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return io_error(temporary, "create");
  Status status = write_all(fd, bytes, temporary);
  if (::close(fd) != 0 && status.ok()) status = io_error(temporary, "close");
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = io_error(path, "replace");
  }
  if (!status.ok()) ::unlink(temporary.c_str());
  return status;
}

Result<KeyCodebooks> load_codebooks(const std::filesystem::path& path, KeyCodeKind kind,
                                    const std::vector<KvLayerShape>& layers,
                                    std::string_view fingerprint) {
  std::error_code failed;
  const auto size = std::filesystem::file_size(path, failed);
  if (failed) {
    return make_error(ErrorCode::kNotFound,
                      "key codebooks " + path.string() + ": " + failed.message());
  }
  const std::string header = header_of(kind, layers, fingerprint);
  IKV_ASSIGN_OR_RETURN(KeyCodebooks books, KeyCodebooks::create(kind, layers));
  size_t expected = header.size() + sizeof(XXH64_hash_t);
  for (const KvLayerShape& layer : layers) {
    expected += static_cast<size_t>(layer.num_kv_heads) * layer.head_dim *
                (kKeyCentroids * sizeof(float) + sizeof(uint16_t) + sizeof(float));
  }
  // The size is known before a byte is read, so that no file can ask for memory.
  if (size != expected) {
    return bad(path, std::to_string(size) + " bytes instead of " + std::to_string(expected));
  }
  std::vector<char> bytes(expected);
  std::ifstream in(path, std::ios::binary);
  if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    return bad(path, "it cannot be read");
  }
  XXH64_hash_t checksum;
  std::memcpy(&checksum, bytes.data() + bytes.size() - sizeof(checksum), sizeof(checksum));
  if (XXH3_64bits(bytes.data(), bytes.size() - sizeof(checksum)) != checksum) {
    return bad(path, "the checksum is wrong");
  }
  if (!std::equal(header.begin(), header.end(), bytes.begin())) {
    return bad(path, "it is of another version, model or shape");
  }
  const char* from = bytes.data() + header.size();
  std::vector<float> head;
  for (size_t l = 0; l < layers.size(); ++l) {
    head.resize(static_cast<size_t>(layers[l].head_dim) * kKeyCentroids);
    for (int h = 0; h < layers[l].num_kv_heads; ++h) {
      std::memcpy(head.data(), from, head.size() * sizeof(float));
      from += head.size() * sizeof(float);
      if (!std::all_of(head.begin(), head.end(), [](float x) { return std::isfinite(x); })) {
        return bad(path, "a centroid is not a finite number");
      }
      KeyTransform transform = identity_transform(layers[l].head_dim);
      std::memcpy(transform.channel.data(), from, transform.channel.size() * sizeof(uint16_t));
      from += transform.channel.size() * sizeof(uint16_t);
      std::memcpy(transform.scale.data(), from, transform.scale.size() * sizeof(float));
      from += transform.scale.size() * sizeof(float);
      if (!is_valid_transform(transform, layers[l].head_dim)) {
        return bad(path, "a transform is not valid");
      }
      books.set_head(static_cast<int>(l), h, head, transform);
    }
  }
  return books;
}

}  // namespace ikv
