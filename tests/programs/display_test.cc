// Text on a terminal.
#include "support/display.h"

#include <gtest/gtest.h>

namespace rdmacomm::programs {
namespace {

TEST(Display, CountsColumns) {
  EXPECT_EQ(display_width(""), 0U);
  EXPECT_EQ(display_width("plain"), 5U);
  EXPECT_EQ(display_width("Größe"), 5U);
  EXPECT_EQ(display_width("日本語"), 6U);
  EXPECT_EQ(display_width("e\u0301"), 1U);
  EXPECT_EQ(display_width("\xff\xfe"), 2U);
}

TEST(Display, CutsBetweenCharacters) {
  EXPECT_EQ(fitted("plain", 5), "plain");
  EXPECT_EQ(fitted("plainer", 6), "pla...");
  EXPECT_EQ(fitted("日本語", 6), "日本語");
  EXPECT_EQ(fitted("日本語", 5), "日...");
  EXPECT_EQ(fitted("日本語", 4), "...");
  EXPECT_EQ(fitted("日本語", 2), "日");
  EXPECT_EQ(fitted("日本語", 0), "");
  EXPECT_EQ(fitted("e\u0301e\u0301", 2), "e\u0301e\u0301");
  for (std::size_t columns = 0; columns < 40; ++columns) {
    const std::string text = fitted(
        "a日é本 語\xff"
        "Größe日本語の名前",
        columns);
    EXPECT_LE(display_width(text), columns);
  }
}

TEST(Display, AFileHasNoWidth) {
  EXPECT_EQ(terminal_columns(-1), 0U);
}

}  // namespace
}  // namespace rdmacomm::programs
