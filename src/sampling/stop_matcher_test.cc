#include "sampling/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ikv {
namespace {

std::string feed_all(StopMatcher& matcher, const std::vector<std::string>& pieces) {
  std::string shown;
  for (const std::string& piece : pieces) shown += matcher.feed(piece);
  return shown + matcher.finish();
}

TEST(StopMatcherTest, WithoutStopsEveryPiecePassesAtOnce) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.feed("abc"), "abc");
  EXPECT_EQ(matcher.finish(), "");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcherTest, CutsBeforeAStopStringThatSpansThreePieces) {
  StopMatcher matcher({"<|end|>"});
  EXPECT_EQ(matcher.feed("hello <"), "hello ");
  EXPECT_EQ(matcher.feed("|en"), "");
  EXPECT_EQ(matcher.feed("d|>more"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), 0);
  EXPECT_EQ(matcher.feed("late"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcherTest, ReleasesTextThatOnlyLookedLikeAStop) {
  StopMatcher matcher({"STOP"});
  EXPECT_EQ(matcher.feed("a STO"), "a ");
  EXPECT_EQ(matcher.feed("RY"), "STORY");
  EXPECT_EQ(matcher.feed(" ST"), " ");
  EXPECT_EQ(matcher.finish(), "ST");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcherTest, FindsAStopInsideASelfOverlappingText) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(feed_all(matcher, {"a", "a", "a", "a", "b", "x"}), "aa");
  EXPECT_TRUE(matcher.stopped());
}

TEST(StopMatcherTest, TheFirstToCompleteWinsAndTheLongestOfThoseThatCompleteTogether) {
  StopMatcher earlier({"abcd", "bc"});
  EXPECT_EQ(feed_all(earlier, {"xabcd"}), "xa");
  EXPECT_EQ(earlier.matched(), 1);
  StopMatcher together({"c", "abc"});
  EXPECT_EQ(feed_all(together, {"xabc"}), "x");
  EXPECT_EQ(together.matched(), 1);
}

// Against the definition: scan the whole text for the stop that ends first, longest on ties.
std::string expected_text(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (stop.size() <= end && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopMatcherTest, AgreesWithANaiveScanForEveryCutOfRandomTexts) {
  std::mt19937 random(7);
  const auto word = [&](size_t most) {
    std::string text(1 + random() % most, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  int num_stopped = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) stop = word(6);
    const std::string text = word(24);
    StopMatcher matcher(stops);
    std::string shown;
    for (size_t i = 0; i < text.size();) {
      const size_t length = 1 + random() % 4;
      shown += matcher.feed(text.substr(i, length));
      i += length;
    }
    shown += matcher.finish();
    ASSERT_EQ(shown, expected_text(text, stops)) << text << " stop " << stops[0];
    num_stopped += matcher.stopped() ? 1 : 0;
  }
  EXPECT_GT(num_stopped, 100);
  EXPECT_LT(num_stopped, 1990);
}

}  // namespace
}  // namespace ikv
