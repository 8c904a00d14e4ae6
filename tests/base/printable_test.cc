#include "base/printable.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace rdmacomm {
namespace {

constexpr std::size_t kMuch = 1000;

TEST(Printable, PrintableCharactersStay) {
  EXPECT_EQ(printable("plain ü 日本 😀", kMuch), "plain ü 日本 😀");
  EXPECT_EQ(printable("", kMuch), "");
}

TEST(Printable, EachUnprintableByteBecomesAQuestionMark) {
  EXPECT_EQ(printable("a\nb\x1b[2J\x7f", kMuch), "a?b?[2J?");
  EXPECT_EQ(printable("\xc2\x9b", kMuch), "??") << "a control of terminals";
  EXPECT_EQ(printable("\xe6\x97", kMuch), "??") << "cut off";
  EXPECT_EQ(printable("\xed\xa0\x80", kMuch), "???") << "half of a pair";
  EXPECT_EQ(printable("\xc0\xaf", kMuch), "??") << "longer than need be";
  EXPECT_EQ(printable("\xf4\x90\x80\x80", kMuch), "????") << "beyond the last one";
  EXPECT_EQ(printable(std::string("a\0b", 3), kMuch), "a?b");
}

TEST(Printable, InvisibleControlCharactersAreUnprintable) {
  EXPECT_EQ(printable("a\u202egnp.exe", kMuch), "a???gnp.exe") << "turns the direction";
  for (const char* text :
       {"\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u2066", "\u2069", "\U000e0041"}) {
    EXPECT_EQ(printable(text, kMuch), std::string(std::string_view(text).size(), '?'));
  }
  EXPECT_EQ(printable("\u2027\u2030\u2065 \u200d", kMuch), "\u2027\u2030\u2065 \u200d") << "their neighbours stay";
}

TEST(Printable, LongTextLosesItsMiddle) {
  EXPECT_EQ(printable("0123456789", 10), "0123456789");
  EXPECT_EQ(printable("0123456789", 9), "012...789");
  EXPECT_EQ(printable("0123456789", 8), "01...789");
  EXPECT_EQ(printable("0123456789", 3), "...");
  EXPECT_EQ(printable("日本日本日本", 10), "日...本") << "of whole characters";
}

TEST(Printable, IsNeverLongerAndNeverSteersATerminal) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int i = 0; i < 5000; ++i) {
    std::string text(random() % 40, ' ');
    for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? random() % 128 : random() % 256);
    const std::size_t most = 3 + random() % 40;
    const std::string clean = printable(text, most);
    ASSERT_LE(clean.size(), most);
    ASSERT_EQ(printable(clean, most), clean);
  }
}

}  // namespace
}  // namespace rdmacomm
