#include "support/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rdmacomm::programs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseSize, TakesSuffixesOfEitherCase) {
  EXPECT_EQ(parse_size("1").value(), 1U);
  EXPECT_EQ(parse_size("4K").value(), 4096U);
  EXPECT_EQ(parse_size("4k").value(), 4096U);
  EXPECT_EQ(parse_size("8M").value(), 8U << 20);
  EXPECT_EQ(parse_size("2G").value(), 2ULL << 30);
}

TEST(ParseSize, QuotesInvalidSizes) {
  for (const char* text : {"", "K", "-1", "4KB", "4 K", "0x10", "1e6", "4Q", "banana", "1.5K", " 4"}) {
    const auto size = parse_size(text);
    ASSERT_FALSE(size.has_value()) << text;
    EXPECT_EQ(size.code(), Errc::kInvalidArgument);
    EXPECT_THAT(size.error().context, HasSubstr('"' + std::string(text) + '"'));
  }
}

TEST(ParseSize, QuotedTextCannotSteerATerminal) {
  EXPECT_THAT(parse_size("4\x1b[2J").error().context, HasSubstr("\"4?[2J\""));
  EXPECT_THAT(parse_sizes("1,4\n").error().context, HasSubstr("\"4?\""));
}

TEST(ParseSize, RefusesZeroAndOverflows) {
  EXPECT_THAT(parse_size("0").error().context, HasSubstr("smallest size is 1 byte"));
  EXPECT_THAT(parse_size("0K").error().context, HasSubstr("smallest size is 1 byte"));
  EXPECT_THAT(parse_size("18446744073709551616").error().context, HasSubstr("too large"));
  EXPECT_THAT(parse_size("9223372036854775807").error().context, HasSubstr("too large"));
  EXPECT_THAT(parse_size("17179869184G").error().context, HasSubstr("too large"));
  EXPECT_EQ(parse_size("4294967296G").value(), std::uint64_t{1} << 62);
}

TEST(ParseSizes, ARangeMeansItsPowersOfTwo) {
  EXPECT_THAT(parse_sizes("1:8").value(), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(parse_sizes("3:20").value(), ElementsAre(4, 8, 16));
  EXPECT_EQ(parse_sizes("1:8M").value().size(), 24U);
  EXPECT_EQ(parse_sizes("1:8M").value().back(), 8U << 20);
  EXPECT_THAT(parse_sizes("4K:4K").value(), ElementsAre(4096));
}

TEST(ParseSizes, AListIsSortedWithoutRepeats) {
  EXPECT_THAT(parse_sizes("64").value(), ElementsAre(64));
  EXPECT_THAT(parse_sizes("4K,1,64,4096").value(), ElementsAre(1, 64, 4096));
}

TEST(ParseSizes, NamesThePartThatIsWrong) {
  EXPECT_THAT(parse_sizes("1,x,3").error().context, HasSubstr("\"x\""));
  EXPECT_THAT(parse_sizes("1,,3").error().context, HasSubstr("\"\""));
  EXPECT_THAT(parse_sizes("1:").error().context, HasSubstr("\"\""));
  EXPECT_THAT(parse_sizes("8:1").error().context, HasSubstr("\"8:1\""));
  EXPECT_THAT(parse_sizes("5:7").error().context, HasSubstr("no power of two"));
  EXPECT_THAT(parse_sizes("0:8").error().context, HasSubstr("smallest size is 1 byte"));
}

TEST(ParseSizes, HasABound) {
  std::string text = "1";
  for (std::size_t i = 2; i <= kMaxSizes + 1; ++i) text += ',' + std::to_string(i);
  EXPECT_THAT(parse_sizes(text).error().context, HasSubstr("65 sizes are too many"));
}

TEST(SizeText, IsTheShortestExactForm) {
  EXPECT_EQ(size_text(1), "1");
  EXPECT_EQ(size_text(1000), "1000");
  EXPECT_EQ(size_text(4096), "4K");
  EXPECT_EQ(size_text(1536), "1536");
  EXPECT_EQ(size_text(8U << 20), "8M");
  EXPECT_EQ(size_text(3ULL << 30), "3G");
  EXPECT_EQ(size_text(2048ULL << 30), "2048G");
}

}  // namespace
}  // namespace rdmacomm::programs
