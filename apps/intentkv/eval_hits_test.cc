#include "eval_hits.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <random>

#include "calibration/calibrate.h"
#include "gguf/reader.h"
#include "gguf/testing/tiny_model.h"

namespace ikv {
namespace {

class EvalHitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::TinyModelOptions tiny;
    tiny.context_tokens = 2048;
    const std::string path =
        ::testing::TempDir() + "/eval_hits_" + std::to_string(getpid()) + ".gguf";
    ASSERT_TRUE(testing::write_tiny_llama(path, tiny).ok());
    auto file = GgufFile::open(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    auto model = Model::load(*file, {}, threads_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
    auto books = KeyCodebooks::create(KeyCodeKind::kProduct, kv_layer_shapes(*model_));
    ASSERT_TRUE(books.ok());
    books_ = std::move(books).value();
    std::mt19937 random(11);
    session_.id = "s";
    for (int i = 0; i < 1200; ++i) {
      session_.tokens.push_back(static_cast<TokenId>(random() % model_->config().vocab_size));
    }
    session_.turns = {
        {1, 600, 640, Role::kUser}, {3, 900, 960, Role::kTool}, {5, 1150, 1200, Role::kUser}};
    std::remove(path.c_str());
  }

  std::vector<HitOutcome> run(const HitOptions& options) {
    auto hits =
        run_hit_rate(*model_, &books_, threads_, {}, {session_}, options, [](size_t, int32_t) {});
    EXPECT_TRUE(hits.ok()) << hits.error().message;
    return hits.ok() ? std::move(hits).value() : std::vector<HitOutcome>{};
  }

  ThreadPool threads_{2};
  std::unique_ptr<Model> model_;
  KeyCodebooks books_;
  EvalSession session_;
};

TEST_F(EvalHitsTest, NoPolicyFindsMoreMassThanTheReplyItself) {
  HitOptions options;
  options.min_history = 700;
  options.layer_stride = 1;
  const auto outcomes = run(options);
  ASSERT_GT(outcomes.size(), 8u);
  const auto& oracle = outcomes.front().turns.front();
  ASSERT_EQ(oracle.size(), 2u);  // the first turn has too little history
  for (const HitOutcome& outcome : outcomes) {
    ASSERT_EQ(outcome.turns.front().size(), oracle.size()) << outcome.name;
    for (size_t turn = 0; turn < oracle.size(); ++turn) {
      for (size_t budget = 0; budget < kHitBudgets.size(); ++budget) {
        const HitShare& hit = outcome.turns.front()[turn][budget];
        EXPECT_LE(hit.mass, oracle[turn][budget].mass + 1e-9) << outcome.name;
        EXPECT_GE(hit.free_mass, 0.0);
        EXPECT_LE(hit.tokens, 1.0 + 1e-9);
      }
      EXPECT_LT(outcome.turns.front()[turn][0].mass, outcome.turns.front()[turn][1].mass);
    }
  }
}

TEST_F(EvalHitsTest, RandomPagesFindTheirShareOfWhatIsNotPinned) {
  HitOptions options;
  options.min_history = 1;
  options.layer_stride = 1;
  options.step_stride = 2;
  for (const HitOutcome& outcome : run(options)) {
    if (outcome.name != "random") continue;
    double sum = 0;
    for (const auto& turn : outcome.turns.front()) sum += turn[1].free_tokens;
    // Half of the pages less the pins, of which there are 5 of 18, 28 and 35.
    EXPECT_NEAR(sum / 3, (4.0 / 13 + 9.0 / 23 + 12.0 / 30) / 3, 0.12);
    return;
  }
  FAIL() << "no random policy";
}

TEST_F(EvalHitsTest, TheTableNamesEveryPolicyAndTheCounts) {
  HitOptions options;
  options.min_history = 1;
  const auto outcomes = run(options);
  const auto json = hits_to_json(outcomes, options);
  EXPECT_EQ(json["turns"], 3);
  EXPECT_EQ(json["policies"][0]["budgets"][0]["mass_of_oracle"], 1.0);
  const std::string table = hits_to_table(json);
  for (const HitOutcome& outcome : outcomes) {
    EXPECT_NE(table.find(outcome.name), std::string::npos);
  }
}

}  // namespace
}  // namespace ikv
