// Broken and hostile files: each gets a message that names the cause; none crashes, hangs or makes
// the reader allocate more than the file warrants.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>

#include "gguf/reader.h"
#include "gguf/testing/tiny_model.h"

namespace ikv::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kHuge = uint64_t{1} << 63;

// Two tensors whose data end with the file, and a value of each kind.
GgufWriter small_file() {
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_u32("general.alignment", 32);
  writer.set_bool("flag", true);
  writer.set_strings("texts", {"a", "bc"});
  writer.set_f32s("numbers", {1.0f, 2.0f});
  writer.add_tensor({"one", WeightType::kF32, {8, 2}, std::vector<std::byte>(64)});
  writer.add_tensor({"two", WeightType::kQ8_0, {32, 16}, std::vector<std::byte>(544)});
  return writer;
}

// Reads every byte that a file offers, so that a sanitizer sees a view that leaves it.
uint64_t touch_all(const GgufFile& file) {
  uint64_t sum = 0;
  for (const auto& [key, value] : file.metadata()) {
    sum += key.size() + describe_gguf_value(value).size();
    if (const auto* text = std::get_if<std::string_view>(&value)) {
      for (const char c : *text) sum += static_cast<unsigned char>(c);
    }
    if (const auto texts = file.strings(key); texts.ok()) {
      for (const std::string_view text : *texts) {
        for (const char c : text) sum += static_cast<unsigned char>(c);
      }
    }
  }
  for (const GgufTensor& tensor : file.tensors()) {
    for (const std::byte byte : tensor.data) sum += static_cast<uint64_t>(byte);
    sum += tensor.num_elements();
  }
  return sum;
}

std::string error_of(const std::vector<std::byte>& bytes) {
  const auto file = GgufFile::parse(bytes, "test.gguf");
  if (!file.ok()) return file.error().message;
  touch_all(*file);
  return "";
}

struct BadFile {
  const char* name;
  std::function<void(GgufWriter&)> spoil;
  const char* message_part;
};

class BadFiles : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadFiles, AreRefusedWithTheCause) {
  GgufWriter writer = small_file();
  ASSERT_EQ(error_of(writer.finish()), "");
  GetParam().spoil(writer);
  const std::string message = error_of(writer.finish());
  EXPECT_THAT(message, HasSubstr(GetParam().message_part));
  EXPECT_THAT(message, HasSubstr("'test.gguf'"));
}

std::function<void(GgufWriter&)> version(uint32_t number) {
  return [=](GgufWriter& w) { w.set_version(number); };
}
std::function<void(GgufWriter&)> raw(uint32_t type, const std::string& bytes) {
  return [=](GgufWriter& w) { w.set_raw("key", type, bytes); };
}
std::function<void(GgufWriter&)> array(uint32_t type, uint64_t count) {
  return raw(GgufWriter::kArray, gguf_bytes(type) + gguf_bytes(count));
}
std::function<void(GgufWriter&)> alignment(uint64_t value) {
  return [=](GgufWriter& w) { w.set_u64("general.alignment", value); };
}
std::function<void(GgufWriter&)> key(const std::string& name) {
  return [=](GgufWriter& w) { w.set_u32(name, 1); };
}
std::function<void(GgufWriter&)> offset(uint64_t value) {
  return [=](GgufWriter& w) { w.set_tensor_offset("two", value); };
}
std::function<void(GgufWriter&)> dims(const std::vector<uint64_t>& sizes) {
  return [=](GgufWriter& w) { w.find_tensor("two")->dims = sizes; };
}
std::function<void(GgufWriter&)> type(uint32_t number) {
  return [=](GgufWriter& w) { w.find_tensor("two")->type = static_cast<WeightType>(number); };
}
std::function<void(GgufWriter&)> tensor_name(const std::string& name) {
  return [=](GgufWriter& w) { w.find_tensor("two")->name = name; };
}

const BadFile kBadFiles[] = {
    {"Version0", version(0), "GGUF version 0; supported: little-endian versions 2 and 3"},
    {"Version1", version(1), "GGUF version 1"},
    {"Version4", version(4), "GGUF version 4"},
    {"BigEndian", version(3u << 24), "big-endian"},
    {"KeyEmpty", key(""), "the length of a metadata key is 0"},
    {"KeyTooLong", key(std::string(70000, 'k')), "it must be 1 to 65535"},
    {"KeyWithNul", key(std::string("a\0b", 3)), "byte 0; keys and tensor names are printable"},
    {"KeyWithEscape", key("a\x1B[2J"), "byte 27"},
    {"KeyNoUtf8", key("a\xFF"), "byte 255"},
    {"ValueType", raw(13, "x"), "a metadata value of unknown type 13"},
    {"ValueTypeHuge", raw(UINT32_MAX, "x"), "unknown type 4294967295"},
    {"Boolean", raw(GgufWriter::kBool, "\2"), "a boolean holds 2"},
    {"BooleanInArray",
     raw(GgufWriter::kArray,
         gguf_bytes(uint32_t{GgufWriter::kBool}) + gguf_bytes(uint64_t{1}) + "\3"),
     "a boolean holds 3"},
    {"StringHuge", raw(GgufWriter::kString, gguf_bytes(kHuge)),
     "the length of a metadata string is 9223372036854775808"},
    {"StringMax", raw(GgufWriter::kString, gguf_bytes(UINT64_MAX)), "18446744073709551615"},
    {"ArrayOfBytesHuge", array(GgufWriter::kUint8, kHuge), "an array's length is 92233"},
    {"ArrayOfStringsHuge", array(GgufWriter::kString, kHuge), "an array's length is 92233"},
    {"ArrayOfWordsWraps", array(GgufWriter::kUint64, (uint64_t{1} << 61) + 1),
     "an array's length is 2305843009213693953"},
    {"ArrayType", array(77, 1), "array elements of unknown type 77"},
    {"ArrayOfArrays", array(GgufWriter::kArray, 1), "array of arrays"},
    {"StringInArrayHuge",
     raw(GgufWriter::kArray,
         gguf_bytes(uint32_t{GgufWriter::kString}) + gguf_bytes(uint64_t{1}) + gguf_bytes(kHuge)),
     "the length of an array's string is 92233"},
    {"SplitModel",
     [](GgufWriter& w) {
       w.set_raw("split.count", GgufWriter::kUint16, {2, 0});
     },
     "one part of a model in 2 files"},
    {"AlignmentZero", alignment(0), "general.alignment is 0; it must be a power of two"},
    {"AlignmentOdd", alignment(33), "general.alignment is 33"},
    {"AlignmentHuge", alignment(kHuge), "general.alignment is 9223372036854775808"},
    {"AlignmentText", [](GgufWriter& w) { w.set_string("general.alignment", "32"); },
     "general.alignment is a string"},
    {"NoDims", dims({}), "'two' has 0 dimensions"},
    {"FiveDims", dims({32, 16, 1, 1, 1}), "'two' has 5 dimensions"},
    {"ZeroDim", dims({32, 0}), "'two' has a dimension of 0"},
    {"HugeDim", dims({kHuge}), "'two' has a dimension of 9223372036854775808"},
    {"DimsThatWrapTo16", dims({32, uint64_t{1} << 60, 16, 1}), "'two' has a dimension of 115292"},
    {"DimsThatWrapToZero", dims({uint64_t{1} << 32, uint64_t{1} << 32}), "more than the file"},
    // Each fits into a file of this size, their product is 2^64.
    {"DimsThatWrapTogether",
     [](GgufWriter& w) {
       w.set_string("filler", std::string(40000, 'x'));
       w.find_tensor("two")->dims = {65536, 65536, 65536, 65536};
     },
     "'two' has a dimension of 65536, more than the file"},
    {"BrokenBlock", dims({31, 16}), "'two' has rows of 31 elements, which Q8_0 cannot store"},
    {"MoreRows", dims({32, 17}), "'two' reaches beyond the end of the file"},
    {"TypeUnsupported", type(16), "weight type IQ2_XXS; supported: F32, F16, BF16, Q8_0"},
    {"TypeUnknown", type(999), "weight type number 999; supported: "},
    {"OffsetOdd", offset(65), "'two' is at offset 65, which is not aligned to 32"},
    {"OffsetHuge", offset(kHuge), "'two' reaches beyond the end"},
    {"OffsetWraps", offset(UINT64_MAX - 31), "'two' reaches beyond the end"},
    {"Overlap", offset(32), "tensors 'one' and 'two' overlap"},
    {"SamePlace", offset(0), "overlap"},
    {"TensorNameEmpty", tensor_name(""), "the length of a tensor's name is 0"},
    {"TensorNameLong", tensor_name(std::string(65, 't')), "it must be 1 to 64"},
    {"TensorNameControl", tensor_name("a\nb"), "byte 10"},
    {"TensorTwice", tensor_name("one"), "tensor 'one' appears twice"},
};
INSTANTIATE_TEST_SUITE_P(All, BadFiles, ::testing::ValuesIn(kBadFiles),
                         [](const auto& test) { return std::string(test.param.name); });

std::vector<std::byte> with_u64_at(size_t at, uint64_t value) {
  auto bytes = small_file().finish();
  std::memcpy(bytes.data() + at, &value, sizeof(value));
  return bytes;
}

TEST(GgufHostileTest, CountsOfTheHeaderAreCheckedBeforeAnythingIsAllocated) {
  for (const uint64_t count : {uint64_t{1} << 20, uint64_t{1} << 32, kHuge, UINT64_MAX}) {
    EXPECT_THAT(error_of(with_u64_at(8, count)), HasSubstr("number of tensors is "));
    EXPECT_THAT(error_of(with_u64_at(16, count)), HasSubstr("number of metadata keys is "));
  }
}

TEST(GgufHostileTest, AKeyThatAppearsTwiceIsRefused) {
  GgufWriter writer;
  writer.set_u32("some.key", 1);
  writer.set_u32("some.kez", 2);
  auto bytes = writer.finish();
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  bytes[text.find("some.kez") + 7] = static_cast<std::byte>('y');
  EXPECT_THAT(error_of(bytes), HasSubstr("metadata key 'some.key' appears twice"));
}

TEST(GgufHostileTest, AnArrayBeyondTheLimitIsRefusedEvenIfTheFileHoldsIt) {
  GgufWriter writer;
  const uint64_t count = kMaxGgufArrayElements + 1;
  writer.set_raw(
      "key", GgufWriter::kArray,
      gguf_bytes(uint32_t{GgufWriter::kUint8}) + gguf_bytes(count) + std::string(count, '\0'));
  EXPECT_THAT(error_of(writer.finish()), HasSubstr("at most 16777216 are read"));
}

TEST(GgufHostileTest, AFileCutAtAnyByteIsRefused) {
  const auto whole = small_file().finish();
  for (size_t size = 0; size < whole.size(); ++size) {
    // A copy of the very size, so that a sanitizer sees a read beyond it.
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_THAT(error_of(cut), HasSubstr("'test.gguf'")) << size << " bytes";
  }
}

TEST(GgufHostileTest, AnyFlippedBitAndAnyByteSetToAnExtremeIsRefusedOrReadSafely) {
  const auto good = small_file().finish();
  int num_refused = 0;
  int num_read = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (int change = 0; change < 10; ++change) {
      auto bytes = good;
      const auto mask = static_cast<std::byte>(1 << (change % 8));
      bytes[at] = change < 8 ? bytes[at] ^ mask : static_cast<std::byte>(change == 8 ? 0xFF : 0x7F);
      ++(error_of(bytes).empty() ? num_read : num_refused);
    }
  }
  EXPECT_GT(num_refused, 1000);
  EXPECT_GT(num_read, 1000);  // weights and texts may hold anything
}

std::string open_error(const std::string& path) {
  const auto file = GgufFile::open(path);
  return file.ok() ? "" : file.error().message;
}

std::string temp_path(const char* name) {
  return ::testing::TempDir() + "/gguf_hostile_test_" + std::to_string(getpid()) + "_" + name;
}

TEST(GgufHostileTest, MissingFilesDirectoriesPipesAndEmptyFilesAreNamed) {
  EXPECT_THAT(open_error("/nowhere/a.gguf"), HasSubstr("'/nowhere/a.gguf'"));
  EXPECT_EQ(GgufFile::open("/nowhere/a.gguf").error().code, ErrorCode::kNotFound);
  EXPECT_THAT(open_error(::testing::TempDir()), HasSubstr("directory"));
  EXPECT_THAT(open_error(std::string("a\0b", 3)), HasSubstr("NUL"));
  EXPECT_FALSE(open_error("").empty());
  const std::string pipe = temp_path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(open_error(pipe), HasSubstr("not a regular file"));
  std::remove(pipe.c_str());
  const std::string empty = temp_path("empty");
  ASSERT_TRUE(write_file(empty, {}).ok());
  EXPECT_THAT(open_error(empty), HasSubstr("is empty"));
  std::remove(empty.c_str());
}

TEST(GgufHostileTest, AFileThatMayNotBeReadIsNamedWithTheReason) {
  const std::string path = temp_path("secret");
  ASSERT_TRUE(write_file(path, small_file().finish()).ok());
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  // The superuser may read it all the same: be somebody else meanwhile.
  const bool superuser = geteuid() == 0;
  if (superuser) {
    ASSERT_EQ(seteuid(65534), 0);
  }
  const std::string message = open_error(path);
  if (superuser) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_THAT(message, HasSubstr("Permission denied"));
  std::remove(path.c_str());
}

}  // namespace
}  // namespace ikv::testing
