// What a good file says, and how a caller learns that it holds something else.
#include "gguf/reader.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "gguf/testing/tiny_model.h"

namespace ikv::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GgufWriter every_type() {
  GgufWriter writer;
  writer.set_raw("a.u8", GgufWriter::kUint8, "\xFF");
  writer.set_raw("a.i8", GgufWriter::kInt8, "\xFE");
  writer.set_raw("a.u16", GgufWriter::kUint16, std::string("\xFF\xFF", 2));
  writer.set_raw("a.i16", GgufWriter::kInt16, std::string("\x00\x80", 2));
  writer.set_u32("a.u32", UINT32_MAX);
  writer.set_i32("a.i32", INT32_MIN);
  writer.set_f32("a.f32", -1.5f);
  writer.set_bool("a.yes", true);
  writer.set_bool("a.no", false);
  writer.set_string("a.text", std::string_view("nul\0 and \xFF", 10));
  writer.set_u64("a.u64", UINT64_MAX);
  writer.set_raw("a.i64", GgufWriter::kInt64, gguf_bytes(uint64_t{1} << 63));
  writer.set_raw("a.f64", GgufWriter::kFloat64, std::string("\0\0\0\0\0\0\xE0\x3F", 8));
  writer.set_strings("a.texts", {"one", "", "three"});
  writer.set_i32s("a.i32s", {-1, 2});
  writer.set_f32s("a.f32s", {0.25f});
  writer.set_raw(
      "a.bools", GgufWriter::kArray,
      gguf_bytes(uint32_t{GgufWriter::kBool}) + gguf_bytes(uint64_t{2}) + std::string("\1\0", 2));
  writer.set_strings("a.none", {});
  return writer;
}

class EveryVersion : public ::testing::TestWithParam<uint32_t> {};

TEST_P(EveryVersion, EveryMetadataTypeKeepsItsValueAndOrder) {
  GgufWriter writer = every_type();
  writer.set_version(GetParam());
  const auto bytes = writer.finish();
  const auto file = GgufFile::parse(bytes, "test.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->version(), GetParam());
  EXPECT_EQ(file->file_bytes(), bytes.size());
  const auto value = [&](const char* key) { return *file->find(key); };
  EXPECT_EQ(value("a.u8"), GgufValue(uint64_t{255}));
  EXPECT_EQ(value("a.i8"), GgufValue(int64_t{-2}));
  EXPECT_EQ(value("a.u16"), GgufValue(uint64_t{65535}));
  EXPECT_EQ(value("a.i16"), GgufValue(int64_t{-32768}));
  EXPECT_EQ(value("a.u32"), GgufValue(uint64_t{UINT32_MAX}));
  EXPECT_EQ(value("a.i32"), GgufValue(int64_t{INT32_MIN}));
  EXPECT_EQ(value("a.f32"), GgufValue(-1.5));
  EXPECT_EQ(value("a.yes"), GgufValue(true));
  EXPECT_EQ(value("a.no"), GgufValue(false));
  EXPECT_EQ(file->string("a.text").value(), std::string_view("nul\0 and \xFF", 10));
  EXPECT_EQ(value("a.u64"), GgufValue(UINT64_MAX));
  EXPECT_EQ(value("a.i64"), GgufValue(INT64_MIN));
  EXPECT_EQ(value("a.f64"), GgufValue(0.5));
  EXPECT_THAT(file->strings("a.texts").value(), ElementsAre("one", "", "three"));
  EXPECT_THAT(file->numbers("a.i32s").value(), ElementsAre(-1.0, 2.0));
  EXPECT_THAT(file->numbers("a.f32s").value(), ElementsAre(0.25));
  EXPECT_THAT(file->numbers("a.bools").value(), ElementsAre(1.0, 0.0));
  EXPECT_TRUE(file->strings("a.none").value().empty());
  ASSERT_EQ(file->metadata().size(), 18u);
  EXPECT_EQ(file->metadata().front().first, "a.u8");
  EXPECT_EQ(file->metadata().back().first, "a.none");
}

INSTANTIATE_TEST_SUITE_P(Versions, EveryVersion, ::testing::Values(2u, 3u));

TEST(GgufReaderTest, AccessorsNameTheKeyWhatItHoldsAndWhatIsNeeded) {
  const auto bytes = every_type().finish();
  const auto file = GgufFile::parse(bytes, "test.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->find("b"), nullptr);
  EXPECT_EQ(file->string("b").error().message,
            "'test.gguf' has no metadata key 'b'; a string is needed there");
  EXPECT_EQ(file->string("a.u8").error().message,
            "'test.gguf' has a number under the key 'a.u8'; a string is needed there");
  EXPECT_EQ(file->strings("a.i32s").error().message,
            "'test.gguf' has an array of 2 numbers under the key 'a.i32s'; an array of strings is "
            "needed there");
  EXPECT_EQ(file->numbers("a.texts").error().message,
            "'test.gguf' has an array of 3 strings under the key 'a.texts'; an array of numbers is "
            "needed there");
  EXPECT_THAT(file->numbers("a.yes").error().message, HasSubstr("has a boolean"));
  EXPECT_EQ(file->numbers("a.text").error().code, ErrorCode::kInvalidFile);
}

TEST(GgufReaderTest, TensorsOfEveryTypeHaveTheirShapeAndBytes) {
  GgufWriter writer;
  for (const WeightTypeInfo& info : weight_types()) {
    writer.add_tensor({std::string(info.name),
                       info.type,
                       {256, 3, 1, 2},
                       random_weights(info.type, 1536, static_cast<uint32_t>(info.type))});
  }
  for (const size_t alignment : {size_t{1}, size_t{32}, size_t{4096}}) {
    writer.set_alignment(alignment);
    writer.set_u32("general.alignment", static_cast<uint32_t>(alignment));
    const auto bytes = writer.finish();
    const auto file = GgufFile::parse(bytes, "test.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_EQ(file->tensors().size(), weight_types().size());
    for (const WeightTypeInfo& info : weight_types()) {
      const GgufTensor* tensor = file->find_tensor(info.name);
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->type, info.type);
      EXPECT_THAT(tensor->dims, ElementsAre(256, 3, 1, 2));
      EXPECT_EQ(tensor->num_elements(), 1536u);
      const auto& written = writer.find_tensor(std::string(info.name))->data;
      ASSERT_EQ(tensor->data.size(), written.size());
      EXPECT_EQ(std::memcmp(tensor->data.data(), written.data(), written.size()), 0);
      EXPECT_EQ(tensor->data.data(), bytes.data() + tensor->file_offset);
    }
  }
}

TEST(GgufReaderTest, AFileWithoutTensorsOrMetadataIsValid) {
  const auto bytes = GgufWriter().finish();
  const auto file = GgufFile::parse(bytes, "test.gguf");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_TRUE(file->tensors().empty());
  EXPECT_TRUE(file->metadata().empty());
  EXPECT_EQ(file->find_tensor("a"), nullptr);
}

TEST(GgufReaderTest, AnOpenedFileKeepsItsViewsWhenItIsMovedAndReleased) {
  const std::string path = ::testing::TempDir() + "/reader_test.gguf";
  ASSERT_TRUE(write_tiny_llama(path, {}).ok());
  auto opened = GgufFile::open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const std::string_view name = opened->string("general.name").value();
  const GgufFile file = std::move(opened).value();
  EXPECT_EQ(file.path(), path);
  EXPECT_EQ(name, "tiny");
  const GgufTensor* tensor = file.find_tensor("blk.1.ffn_down.weight");
  ASSERT_NE(tensor, nullptr);
  const std::vector<std::byte> before(tensor->data.begin(), tensor->data.end());
  file.release(*tensor);
  EXPECT_EQ(std::memcmp(tensor->data.data(), before.data(), before.size()), 0);
  EXPECT_EQ(file.strings("tokenizer.ggml.tokens").value().size(),
            file.find_tensor("token_embd.weight")->dims[1]);
  std::remove(path.c_str());
}

TEST(WeightTypesTest, NamesCoverSupportedAndUnsupportedNumbers) {
  for (const WeightTypeInfo& info : weight_types()) {
    EXPECT_EQ(ggml_type_name(static_cast<uint32_t>(info.type)), info.name);
    EXPECT_THAT(supported_weight_types(), HasSubstr(std::string(info.name)));
  }
  EXPECT_EQ(ggml_type_name(16), "IQ2_XXS");
  EXPECT_EQ(ggml_type_name(4000000000u), "number 4000000000");
  EXPECT_EQ(find_weight_type(16), nullptr);
}

}  // namespace
}  // namespace ikv::testing
