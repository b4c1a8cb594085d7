// The engine's predictions against the NumPy forward, teacher-forced over real conversations.
//
// What must hold on every path is a top-1 agreement of at least 99 % and a mean KL of at most 1e-3
// nats; each path has a tighter bound of its own, so that a loss of precision shows. The figures
// are printed and kept as properties in the test's XML output.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "gguf/reader.h"
#include "oracle_cache.h"
#include "oracle_data.h"
#include "oracle_isa.h"
#include "text/tokenizer_gguf.h"

namespace ikv::testing {
namespace {

constexpr double kMinTop1 = 0.99;
// Plain float32 arithmetic and 16-bit activations reach 1e-11 and 1e-6.
constexpr double kMaxMeanKlReference = 1e-9;
constexpr double kMaxMeanKlPacked = 1e-5;
constexpr size_t kChunkTokens = 64;
// The last rows of a segment go one by one, since decode has kernels of its own.
constexpr size_t kDecodeTokens = 32;
// The scalar kernels take a fifth of a second a token, so only the beginnings of the segments are
// run unless $IKV_ORACLE_FULL is set. Their matrix products are compared bit by bit with the other
// sets' in matmul_test; the element-wise steps and attention are not bit-identical.
constexpr size_t kScalarTokens = 20;

struct OraclePath {
  ComputePath path = ComputePath::kPacked;
  CpuIsa isa = CpuIsa::kScalar;
  OracleCacheKind cache;
};

std::ostream& operator<<(std::ostream& out, const OraclePath& path) {
  return out << path.cache.name << ' ' << cpu_isa_name(path.isa);
}

// The plain cache on every compute path, then the paged one, whose int8 pages are the default.
std::vector<OraclePath> all_paths() {
  const std::vector<CpuIsa> isas = supported_isas();
  const OracleCacheKind int8 = paged_cache("PagedInt8", KvFormat::kInt8, 5e-4);
  std::vector<OraclePath> paths;
  paths.push_back({ComputePath::kReference, isas.back(), contiguous_cache()});
  for (const CpuIsa isa : isas) paths.push_back({ComputePath::kPacked, isa, contiguous_cache()});
  for (const CpuIsa isa : isas) paths.push_back({ComputePath::kPacked, isa, int8});
  for (const auto& [name, format] :
       {std::pair("PagedF32", KvFormat::kF32), std::pair("PagedF16", KvFormat::kF16)}) {
    paths.push_back({ComputePath::kPacked, isas.back(), paged_cache(name, format, 0.0)});
  }
  return paths;
}

struct Agreement {
  size_t num_rows = 0;
  size_t num_same_top = 0;
  double sum_kl = 0.0;
  double max_kl = 0.0;

  void add(const Agreement& other) {
    num_rows += other.num_rows;
    num_same_top += other.num_same_top;
    sum_kl += other.sum_kl;
    max_kl = std::max(max_kl, other.max_kl);
  }
  double top1() const { return static_cast<double>(num_same_top) / static_cast<double>(num_rows); }
  double mean_kl() const { return sum_kl / static_cast<double>(num_rows); }
  std::string summary() const {
    char text[128];
    std::snprintf(text, sizeof(text), "%zu tokens, top-1 %.2f %%, mean KL %.2e, largest KL %.2e",
                  num_rows, 100.0 * top1(), mean_kl(), max_kl);
    return text;
  }
};

void judge(const OracleRow& row, const float* logits, size_t vocab_size, Agreement& agreement) {
  const double kl = estimate_kl(row, logits, vocab_size);
  ++agreement.num_rows;
  agreement.num_same_top += arg_max(logits, vocab_size) == row.top_ids[0];
  agreement.sum_kl += kl;
  agreement.max_kl = std::max(agreement.max_kl, kl);
}

class OracleLogitsTest : public ::testing::TestWithParam<OraclePath> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(model_path())) {
      GTEST_SKIP() << model_path() << " is missing; `intentkv model get smollm2` brings it, or set "
                   << "IKV_TEST_MODEL";
    }
    if (!std::filesystem::exists(data_dir())) {
      GTEST_SKIP() << data_dir() << " is missing; set IKV_DATA_DIR to the conversations' folder";
    }
    auto golden = load_oracle_golden();
    ASSERT_TRUE(golden.ok()) << golden.error().message;
    golden_ = std::move(*golden);
    const auto hash = sha256_of_file(model_path());
    ASSERT_TRUE(hash.ok()) << hash.error().message;
    if (*hash != golden_.model_sha256) {
      GTEST_SKIP() << model_path() << " is another model than the goldens'";
    }
    load_model();
  }

  void load_model() {
    const auto file = GgufFile::open(model_path());
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto tokenizer = load_tokenizer(*file);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    auto chat_template = load_chat_template(*file, *tokenizer);
    ASSERT_TRUE(chat_template.ok()) << chat_template.error().message;
    chat_template_ = std::move(*chat_template);
    ModelOptions options;
    options.path = GetParam().path;
    auto model = Model::load(*file, options, threads_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(*model);
  }

  // Teacher-forced over one segment, whose rows begin at `row`.
  void run_segment(const std::vector<TokenId>& tokens, const OracleRow* row, Agreement& agreement) {
    auto lane = GetParam().cache.create(*model_, threads_);
    ASSERT_TRUE(lane.ok()) << lane.error().message;
    const size_t vocab_size = golden_.vocab_size;
    size_t begin = 0;
    while (begin < tokens.size()) {
      const size_t left = tokens.size() - begin;
      const bool decode = left <= kDecodeTokens;
      const size_t count = decode ? 1 : std::min(kChunkTokens, left - kDecodeTokens);
      const auto logits = (*lane)->step({tokens.data() + begin, count}, decode);
      ASSERT_TRUE(logits.ok()) << logits.error().message;
      for (size_t i = 0; i < count; ++i) {
        judge(row[begin + i], *logits + i * vocab_size, vocab_size, agreement);
      }
      begin += count;
    }
  }

  ForcedIsa isa_{GetParam().isa};
  ThreadPool threads_{2};
  OracleGolden golden_;
  std::unique_ptr<ChatTemplate> chat_template_;
  std::unique_ptr<Model> model_;
};

TEST_P(OracleLogitsTest, PredictsAsTheNumPyForwardOverRealConversations) {
  ASSERT_EQ(static_cast<size_t>(model_->config().vocab_size), golden_.vocab_size);
  const bool scalar = GetParam().path == ComputePath::kPacked &&
                      GetParam().isa == CpuIsa::kScalar &&
                      std::getenv("IKV_ORACLE_FULL") == nullptr;
  Agreement total;
  const OracleRow* row = golden_.rows.data();
  for (const OracleSegment& segment : golden_.segments) {
    auto tokens = segment_tokens(segment, *chat_template_);
    ASSERT_TRUE(tokens.ok()) << tokens.error().message;
    ASSERT_EQ(tokens->size(), segment.num_tokens);
    if (scalar) tokens->resize(kScalarTokens);
    Agreement agreement;
    ASSERT_NO_FATAL_FAILURE(run_segment(*tokens, row, agreement));
    std::printf("  %-16s %s\n", segment.file.c_str(), agreement.summary().c_str());
    total.add(agreement);
    row += segment.num_tokens;
  }
  std::printf("  %-16s %s\n", "all", total.summary().c_str());
  RecordProperty("agreement", total.summary());
  if (!scalar) {
    EXPECT_GE(total.num_rows, 2000u);
  }
  EXPECT_GE(total.top1(), kMinTop1);
  const bool reference = GetParam().path == ComputePath::kReference;
  EXPECT_LE(total.mean_kl(),
            GetParam().cache.max_mean_kl + (reference ? kMaxMeanKlReference : kMaxMeanKlPacked));
}

INSTANTIATE_TEST_SUITE_P(Paths, OracleLogitsTest, ::testing::ValuesIn(all_paths()),
                         [](const auto& test) {
                           const OraclePath& path = test.param;
                           return path.cache.name +
                                  (path.path == ComputePath::kReference
                                       ? std::string("Reference")
                                       : "Packed_" + std::string(cpu_isa_name(path.isa)));
                         });

}  // namespace
}  // namespace ikv::testing
