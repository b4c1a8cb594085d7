// From a run's audit through a file to the text that `intentkv explain` prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "audit_json.h"
#include "engine_fixture.h"
#include "explain_text.h"
#include "explain_words.h"
#include "file_io.h"

namespace ikv::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Explain : public ::testing::Test {
 protected:
  Explain() {
    folder_ = ::testing::TempDir() + "/ikv_explain_test_" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    path_ = folder_ + "/audit.jsonl";
  }
  ~Explain() override { std::filesystem::remove_all(folder_); }

  // Two turns of one session into the file; the audits as the engine gave them.
  std::vector<TurnAudit> run(bool with_text) {
    EngineConfig config = tiny_config();
    config.kv_policy = "intent";
    config.kv_attend = "40%";
    config.kv_attend_min_tokens = 200;
    config.kv_resident = "30%";
    const auto engine = tiny_engine(config);
    auto file = AuditFile::open(path_, with_text);
    EXPECT_TRUE(file.ok()) << file.error().message;
    std::vector<TurnAudit> audits;
    std::vector<Message> messages = {message(Role::kUser, filler(220, 1) + "Straße 東京")};
    for (int turn = 0; turn < 2; ++turn) {
      ChatRequest request = chat_request(messages, 12, "s");
      request.audit = true;
      const GenerationResult result = run_chat(*engine, std::move(request));
      EXPECT_TRUE(file->write(*engine, result).ok());
      audits.push_back(*result.audit);
      messages.push_back(result.message);
      messages.push_back(message(Role::kUser, "and now?"));
    }
    return audits;
  }

  std::string refusal(const std::string& text) {
    EXPECT_TRUE(ikv::write_file(path_, text).ok());
    const auto records = read_audit_file(path_);
    EXPECT_FALSE(records.ok());
    return records.ok() ? std::string() : records.error().message;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(Explain, AFileReadsBackWhatTheEngineSaid) {
  const std::vector<TurnAudit> audits = run(true);
  const auto records = read_audit_file(path_);
  ASSERT_TRUE(records.ok()) << records.error().message;
  ASSERT_EQ(records->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const TurnAudit& read = (*records)[i].audit;
    EXPECT_EQ(read.turn, audits[i].turn);
    EXPECT_EQ(read.session_id, "s");
    EXPECT_EQ(read.cold_pages, audits[i].cold_pages);
    EXPECT_EQ(read.usage.kv.resident_bytes, audits[i].usage.kv.resident_bytes);
    ASSERT_EQ(read.attended_shares.size(), audits[i].attended_shares.size());
    for (size_t t = 0; t < read.attended_shares.size(); ++t) {
      EXPECT_NEAR(read.attended_shares[t], audits[i].attended_shares[t], 0.0006);
    }
    ASSERT_EQ(read.spans.size(), audits[i].spans.size());
    EXPECT_EQ(read.spans.back().role, audits[i].spans.back().role);
    ASSERT_EQ(read.blocks.size(), audits[i].blocks.size());
    EXPECT_EQ(read.blocks[1].reasons.demoted, audits[i].blocks[1].reasons.demoted);
    // Writing what was read gives the same line.
    EXPECT_EQ(audit_to_json(read, (*records)[i].texts).dump(),
              audit_to_json(audits[i], (*records)[i].texts).dump());
  }
}

TEST_F(Explain, TheTranscriptIsShownWholeWithItsMarks) {
  run(true);
  const auto records = read_audit_file(path_);
  ASSERT_TRUE(records.ok());
  const AuditRecord& second = (*records)[1];
  const std::string plain = explain_transcript(second, &(*records)[0], {});
  EXPECT_THAT(plain, HasSubstr("-- user 0"));
  EXPECT_THAT(plain, HasSubstr("-- assistant 3"));
  EXPECT_THAT(plain, HasSubstr("東京"));
  EXPECT_THAT(plain, HasSubstr("partly int4 | "));
  EXPECT_THAT(plain, HasSubstr("«"));
  EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
  ExplainStyle colour;
  colour.colour = true;
  EXPECT_THAT(explain_transcript(second, nullptr, colour), HasSubstr("\x1b[1m"));
  EXPECT_THAT(explain_figures(second.audit), HasSubstr("turn 2 of session s: prompt"));
  EXPECT_THAT(explain_messages(second.audit), HasSubstr("user"));
}

TEST_F(Explain, WithoutTheWishForTextNoneIsWritten) {
  run(false);
  const auto text = read_file(path_);
  ASSERT_TRUE(text.ok());
  EXPECT_THAT(*text, Not(HasSubstr("東京")));
  EXPECT_THAT(*text, Not(HasSubstr("texts")));
  const auto records = read_audit_file(path_);
  ASSERT_TRUE(records.ok());
  EXPECT_TRUE((*records)[0].texts.empty());
  EXPECT_TRUE(explain_words((*records)[0], 5).empty());
  const std::vector<Message> messages = {message(Role::kUser, "first line\nsecond line")};
  const std::string whole = explain_conversation((*records)[0].audit, messages, {});
  EXPECT_THAT(whole, HasSubstr("partly | first line\n"));
  EXPECT_THAT(whole, HasSubstr("| second line\n"));
}

TEST_F(Explain, BadFilesAreNamedByLineAndField) {
  EXPECT_THAT(refusal(""), HasSubstr("holds no audit"));
  EXPECT_THAT(refusal("not json\n"), HasSubstr("line 1: not a JSON object"));
  EXPECT_THAT(refusal("\n[1]\n"), HasSubstr("line 2: not a JSON object"));
  EXPECT_THAT(refusal("{}\n"), HasSubstr("version"));
  EXPECT_THAT(refusal("{\"version\": 99}\n"), HasSubstr("version 99"));
  run(true);
  const auto text = read_file(path_);
  ASSERT_TRUE(text.ok());
  auto good = nlohmann::json::parse(text->substr(0, text->find('\n')));
  auto bad = good;
  bad["spans"][0]["end"] = 1000000;
  EXPECT_THAT(refusal(bad.dump()), HasSubstr("spans: tokens 0 to 1000000"));
  bad = good;
  bad["spans"][0]["role"] = "robot";
  EXPECT_THAT(refusal(bad.dump()), HasSubstr("role"));
  bad = good;
  bad["texts"].erase(0);
  EXPECT_THAT(refusal(bad.dump()), HasSubstr("texts: "));
  bad = good;
  bad["blocks"][0]["hot"] = "many";
  EXPECT_THAT(refusal(bad.dump()), HasSubstr("not an audit record"));
  bad = good;
  bad["blocks"][0]["begin"] = -5;
  EXPECT_THAT(refusal(bad.dump()), HasSubstr("blocks: tokens -5"));
  const auto missing = read_audit_file(folder_ + "/none.jsonl");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("none.jsonl"));
  EXPECT_FALSE(AuditFile::open(folder_ + "/no/such/folder", false).ok());
  EXPECT_FALSE(AuditFile::open("", true).ok());
}

TEST_F(Explain, ControlCharactersOfATranscriptDoNotReachTheTerminal) {
  AuditRecord record;
  record.audit.attended_shares = {1.0f, 1.0f};
  record.audit.tokens = {0, 0};
  record.audit.usage.prompt_tokens = 2;
  AuditSpan span;
  span.message = 0;
  span.part = "content";
  span.end = 2;
  record.audit.spans = {span};
  record.texts = {{1, "a\x1b[2Jb"}, {1, "\r\nc"}};
  EXPECT_EQ(explain_transcript(record, nullptr, {}),
            "-- user 0\n 100% kept        | «a\\x1b[2Jb\\x0d»\n 100% kept        | «c»\n");
}

TEST_F(Explain, TheMostReadWordsAreWholeAndWithoutWhatIsReadByRule) {
  AuditRecord record;
  TurnAudit& audit = record.audit;
  const auto add = [&](const std::string& text, float share) {
    record.texts.push_back({1, text});
    audit.tokens.push_back(0);
    audit.attended_shares.push_back(share);
  };
  for (int i = 0; i < 32; ++i) add(" sink", 1.0f);
  for (const char* part : {" leaves", " 0", "7", ":", "5", "5"}) add(part, 0.9f);
  add(" maybe", 0.1f);
  add(" {", 0.8f);
  for (int i = 0; i < 128; ++i) add(" recent", 1.0f);
  AuditSpan span;
  span.message = 0;
  span.part = "content";
  span.end = static_cast<int32_t>(audit.tokens.size()) - 1;
  AuditSpan question = span;
  question.message = 1;
  question.begin = span.end;
  question.end = span.end + 1;
  audit.spans = {span, question};
  audit.usage.prompt_tokens = question.end;
  const std::vector<ReadWord> words = most_read_words(record, 2);
  ASSERT_EQ(words.size(), 2u);
  EXPECT_EQ(words[0].text, "leaves");
  EXPECT_EQ(words[1].text, "07:55");
}

}  // namespace
}  // namespace ikv::testing
