// The tiny model that engine and server tests run on is whole: every layer of loading takes it.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "base/thread_pool.h"
#include "gguf/reader.h"
#include "gguf/testing/tiny_model.h"
#include "model/model.h"
#include "text/tokenizer_gguf.h"

namespace ikv::testing {
namespace {

class TinyLlama : public ::testing::TestWithParam<WeightType> {};

TEST_P(TinyLlama, LoadsAsModelTokenizerAndChatTemplate) {
  const std::string path = ::testing::TempDir() + "/tiny_llama_test_" +
                           std::string(weight_type_info(GetParam()).name) + ".gguf";
  TinyModelOptions options;
  options.type = GetParam();
  ASSERT_TRUE(write_tiny_llama(path, options).ok());
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  std::remove(path.c_str());

  ThreadPool threads(1);
  const auto model = Model::load(*file, {}, threads);
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto tokenizer = load_tokenizer(*file);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->vocab_size(), (*model)->config().vocab_size);

  const std::string text = "in the thing\n\n\xC3\xA4 \xF0\x9F\xA6\x80";
  const auto tokens = (*tokenizer)->encode(text, /*parse_special=*/true);
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  EXPECT_LT(tokens->size(), text.size());  // merges are used
  EXPECT_EQ((*tokenizer)->decode(*tokens).value(), text);

  const auto chat_template = load_chat_template(*file, *tokenizer);
  ASSERT_TRUE(chat_template.ok()) << chat_template.error().message;
  Message message;
  message.content = "hi";
  const auto chat = (*chat_template)->tokenize(std::vector<Message>{message}, {});
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_EQ((*tokenizer)->decode(chat->tokens, /*with_control=*/true).value(),
            "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
}

INSTANTIATE_TEST_SUITE_P(Types, TinyLlama,
                         ::testing::Values(WeightType::kF32, WeightType::kQ4_1, WeightType::kQ6_K),
                         [](const auto& test) {
                           return std::string(weight_type_info(test.param).name);
                         });

}  // namespace
}  // namespace ikv::testing
