// Codebooks of a tiny model: fitted once, found again, fitted anew when the file cannot be used.
#include "calibration/calibrate.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/log.h"
#include "calibration/capture_attention.h"
#include "calibration/model_fingerprint.h"
#include "gguf/testing/tiny_model.h"
#include "text/tokenizer_gguf.h"

namespace ikv::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

// A model, its tokenizer and an empty cache folder of its own.
class CalibrationTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string pattern = (fs::temp_directory_path() / "ikv-calibration-XXXXXX").string();
    std::string name = pattern;
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    ASSERT_EQ(::setenv("XDG_CACHE_HOME", folder_.c_str(), 1), 0);
    TinyModelOptions tiny;
    tiny.tokenizer = true;
    bytes_ = tiny_model(tiny).finish();
    auto file = GgufFile::parse(bytes_, "tiny.gguf");
    ASSERT_TRUE(file.ok());
    fingerprint_ = model_fingerprint(*file);
    auto model = Model::load(*file, {}, threads_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
    auto tokenizer = load_tokenizer(*file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    tokenizer_ = *tokenizer;
    options_.text_tokens = 300;
    options_.max_samples = 256;
    set_log_level(LogLevel::kSilent);
  }
  void TearDown() override {
    set_log_level(LogLevel::kWarning);
    std::error_code ignored;
    fs::permissions(folder_, fs::perms::owner_all, ignored);
    fs::remove_all(folder_, ignored);
  }

  Result<Calibration> calibrate() {
    return load_or_fit_codebooks(*model_, *tokenizer_, fingerprint_, options_, threads_);
  }

  ThreadPool threads_{2};
  fs::path folder_;
  std::vector<std::byte> bytes_;
  std::string fingerprint_;
  std::unique_ptr<Model> model_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  CalibrationOptions options_;
};

void expect_same_books(const KeyCodebooks& a, const KeyCodebooks& b) {
  ASSERT_EQ(a.layers().size(), b.layers().size());
  EXPECT_EQ(a.kind(), b.kind());
  for (size_t l = 0; l < a.layers().size(); ++l) {
    for (int h = 0; h < a.layers()[l].num_kv_heads; ++h) {
      const auto x = a.head(static_cast<int>(l), h);
      const auto y = b.head(static_cast<int>(l), h);
      EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << l << ' ' << h;
    }
  }
}

TEST_F(CalibrationTest, FirstUseFitsAndSavesTheNextOneLoadsTheSame) {
  const auto first = calibrate();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_TRUE(first->fitted);
  EXPECT_TRUE(first->saved) << first->not_saved_reason;
  EXPECT_EQ(first->num_text_tokens, 300u);
  EXPECT_EQ(first->num_samples, 256u);
  EXPECT_TRUE(fs::exists(first->path));
  EXPECT_THAT(first->path.string(), HasSubstr(fingerprint_));
  const auto second = calibrate();
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_FALSE(second->fitted);
  EXPECT_EQ(second->path, first->path);
  expect_same_books(first->books, second->books);
}

TEST_F(CalibrationTest, TheResultDoesNotDependOnTheNumberOfThreads) {
  const auto two = fit_calibration(*model_, *tokenizer_, options_, threads_);
  ThreadPool one(1);
  const auto single = fit_calibration(*model_, *tokenizer_, options_, one);
  ASSERT_TRUE(two.ok() && single.ok());
  expect_same_books(two->books, single->books);
}

TEST_F(CalibrationTest, DamagedFileIsFittedAgainAndOverwritten) {
  const auto first = calibrate();
  ASSERT_TRUE(first.ok());
  std::fstream file(first->path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(200);
  file.put('\x5A');
  file.close();
  const auto second = calibrate();
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_TRUE(second->fitted);
  EXPECT_TRUE(second->saved);
  EXPECT_THAT(second->refit_reason, HasSubstr(first->path.string()));
  expect_same_books(first->books, second->books);
  const auto third = calibrate();
  ASSERT_TRUE(third.ok());
  EXPECT_FALSE(third->fitted);
}

TEST_F(CalibrationTest, AFileOfAnotherModelIsNotUsed) {
  options_.path = folder_ / "books";
  ASSERT_TRUE(calibrate().ok());
  fingerprint_ = "another";
  const auto other = calibrate();
  ASSERT_TRUE(other.ok());
  EXPECT_TRUE(other->fitted);
  EXPECT_FALSE(other->refit_reason.empty());
}

TEST_F(CalibrationTest, ForceFitsThoughAValidFileIsThere) {
  ASSERT_TRUE(calibrate().ok());
  options_.force = true;
  const auto again = calibrate();
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->fitted);
  EXPECT_TRUE(again->saved);
}

TEST_F(CalibrationTest, CacheThatCannotBeWrittenCostsOnlyTheSaving) {
  // A file where the folder should be: refuses root too, unlike permissions.
  std::ofstream(folder_ / "intentkv") << "in the way";
  const auto fitted = calibrate();
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  EXPECT_TRUE(fitted->fitted);
  EXPECT_FALSE(fitted->saved);
  EXPECT_FALSE(fitted->not_saved_reason.empty());
  EXPECT_FALSE(fitted->books.empty());
}

TEST_F(CalibrationTest, WithoutACacheFolderItStillWorks) {
  const char* home = std::getenv("HOME");
  const std::string saved_home = home != nullptr ? home : "";
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  const auto fitted = calibrate();
  if (home != nullptr) ::setenv("HOME", saved_home.c_str(), 1);
  ASSERT_TRUE(fitted.ok()) << fitted.error().message;
  EXPECT_FALSE(fitted->saved);
  EXPECT_TRUE(fitted->path.empty());
}

TEST_F(CalibrationTest, ProgressReachesTheEndOfBothStages) {
  size_t tokens = 0;
  size_t heads = 0;
  options_.progress = [&](CalibrationStage stage, size_t done, size_t all) {
    EXPECT_LE(done, all);
    size_t& last = stage == CalibrationStage::kRunModel ? tokens : heads;
    EXPECT_GE(done, last);
    last = done;
  };
  ASSERT_TRUE(calibrate().ok());
  EXPECT_EQ(tokens, 300u);
  EXPECT_EQ(heads, 4u);
}

TEST_F(CalibrationTest, OptionsOutOfRangeAreNamed) {
  options_.text_tokens = 3;
  const auto few = calibrate();
  ASSERT_FALSE(few.ok());
  EXPECT_EQ(few.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(few.error().message, HasSubstr("text_tokens is 3"));
  options_.text_tokens = 300;
  options_.rotations = 0;
  EXPECT_FALSE(calibrate().ok());
}

TEST_F(CalibrationTest, AFingerprintThatIsNoFileNameIsRefused) {
  fingerprint_ = "../escape";
  const auto refused = calibrate();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(CalibrationTest, FingerprintIsTheFilesOwnAndNotItsPlaces) {
  const fs::path a = folder_ / "a.gguf";
  const fs::path b = folder_ / "b.gguf";
  ASSERT_TRUE(write_file(a.string(), bytes_).ok());
  ASSERT_TRUE(write_file(b.string(), bytes_).ok());
  EXPECT_EQ(model_fingerprint(*GgufFile::open(a.string())), fingerprint_);
  EXPECT_EQ(model_fingerprint(*GgufFile::open(b.string())), fingerprint_);
  EXPECT_EQ(fingerprint_.size(), 32u);
}

TEST_F(CalibrationTest, FingerprintChangesWithWeightsMetadataNamesAndShapes) {
  TinyModelOptions tiny;
  tiny.tokenizer = true;
  tiny.ffn_size = 1024;  // matrices large enough to be read in stretches
  const auto print = [](const GgufWriter& writer) {
    const auto bytes = writer.finish();
    auto file = GgufFile::parse(bytes, "changed.gguf");
    EXPECT_TRUE(file.ok());
    return model_fingerprint(*file);
  };
  GgufWriter base = tiny_model(tiny);
  std::vector<std::string> seen = {print(base)};
  GgufWriter changed = base;
  auto* tensor = changed.find_tensor("blk.1.ffn_down.weight");
  ASSERT_NE(tensor, nullptr);
  ASSERT_GT(tensor->data.size(), size_t{512} << 10);
  tensor->data.back() ^= std::byte{1};
  seen.push_back(print(changed));
  changed = base;
  changed.find_tensor("blk.0.attn_norm.weight")->data[0] ^= std::byte{1};
  seen.push_back(print(changed));
  changed = base;
  changed.set_string("general.name", "other");
  seen.push_back(print(changed));
  changed = base;
  changed.find_tensor("blk.0.attn_norm.weight")->name = "blk.0.attn_morn.weight";
  seen.push_back(print(changed));
  tiny.seed = 2;
  seen.push_back(print(tiny_model(tiny)));
  for (size_t i = 0; i < seen.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(seen[i], seen[j]) << i << ' ' << j;
  }
}

}  // namespace
}  // namespace ikv::testing
