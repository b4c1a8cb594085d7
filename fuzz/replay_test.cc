// Every kept input of one fuzz target, through the same entry point, in ordinary builds too: what a
// fuzzer once found stays found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

namespace fs = std::filesystem;

TEST(FuzzReplayTest, EveryKeptInputRunsThrough) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(IKV_CORPUS_DIR)) {
    if (entry.is_regular_file()) paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  ASSERT_FALSE(paths.empty()) << "no inputs in " << IKV_CORPUS_DIR;
  for (const fs::path& path : paths) {
    SCOPED_TRACE(path.filename().string());
    std::ifstream file(path, std::ios::binary);
    const std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
    // Exactly as long as the input, so that a sanitizer sees a read beyond it.
    const std::vector<uint8_t> bytes(text.begin(), text.end());
    EXPECT_EQ(LLVMFuzzerTestOneInput(bytes.data(), bytes.size()), 0);
  }
}

TEST(FuzzReplayTest, TheEmptyInputRunsThrough) {
  const uint8_t nothing = 0;
  EXPECT_EQ(LLVMFuzzerTestOneInput(&nothing, 0), 0);
}

}  // namespace
