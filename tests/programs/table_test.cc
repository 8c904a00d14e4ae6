#include "support/table.h"

#include <gtest/gtest.h>

#include <sstream>

namespace rdmacomm::programs {
namespace {

TEST(Table, AlignsNumbersRightAndTextLeft) {
  const Table table({{.header = "op", .width = 6, .left = true}, {.header = "bytes"}, {.header = "us", .width = 8}});
  std::ostringstream out;
  table.print_header(out);
  table.print_row(out, {"write", "64", "0.123"});
  table.print_row(out, {"read", "1048576", "9"});
  table.print_row(out, {"send"});
  EXPECT_EQ(out.str(),
            "op      bytes        us\n"
            "write      64     0.123\n"
            "read    1048576         9\n"
            "send\n");
}

std::string header_of(std::size_t width) {
  const Table table({{.header = "name", .left = true},
                     {.header = "a", .width = 3, .dispensable = 1},
                     {.header = "b", .width = 3, .dispensable = 2},
                     {.header = "c", .width = 3}},
                    width);
  std::ostringstream out;
  table.print_row(out, {"n", "1", "2", "3"});
  return out.str();
}

TEST(Table, OmitsOptionalColumnsIfRoomIsShort) {
  EXPECT_EQ(header_of(SIZE_MAX), "n       1    2    3\n");
  EXPECT_EQ(header_of(19), "n       1    2    3\n");
  EXPECT_EQ(header_of(18), "n      1   2   3\n");
  EXPECT_EQ(header_of(16), "n      1   2   3\n");
  EXPECT_EQ(header_of(15), "n      1   3\n");
  EXPECT_EQ(header_of(11), "n      3\n");
  EXPECT_EQ(header_of(1), "n      3\n") << "what is not dispensable stays";
}

TEST(NumberText, KeepsThreeDigits) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.0501), "0.050");
  EXPECT_EQ(number_text(0.001), "0.001");
  EXPECT_EQ(number_text(0.000278), "2.8e-4");
  EXPECT_EQ(number_text(1.234e-12), "1.2e-12");
  EXPECT_EQ(number_text(3.14159), "3.142");
  EXPECT_EQ(number_text(31.4159), "31.42");
  EXPECT_EQ(number_text(314.159), "314.2");
  EXPECT_EQ(number_text(31415.9), "31416");
}

TEST(RatioText, NeedsABase) {
  EXPECT_EQ(ratio_text(3, 2), "1.50x");
  EXPECT_EQ(ratio_text(3, 0), "-");
}

}  // namespace
}  // namespace rdmacomm::programs
