#include "softdev/check/suppressions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rdmacomm::softdev::check {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

std::vector<Suppression> parse(std::string_view text) {
  std::vector<std::string> errors;
  auto all = parse_suppressions(text, "file", errors);
  EXPECT_THAT(errors, IsEmpty());
  return all;
}

TEST(Suppressions, ALineHasARuleAProgramAndMaybeAPlace) {
  const auto all = parse("# a comment\n\noverlap ib_*  # another one\nleak\t*  lib*.so.1\n");
  EXPECT_TRUE(is_suppressed(all, "overlap", "ib_send_bw", {}));
  EXPECT_FALSE(is_suppressed(all, "overlap", "qperf", {}));
  EXPECT_FALSE(is_suppressed(all, "receive-posted-twice", "ib_send_bw", {}));
  EXPECT_TRUE(is_suppressed(all, "leak", "any", {"program", "libx.so.1"}));
  EXPECT_FALSE(is_suppressed(all, "leak", "any", {"program"}));
}

TEST(Suppressions, WrongLinesAreNamed) {
  std::vector<std::string> errors;
  const auto all = parse_suppressions("overlap\noverlapp *\nleak a b c\nleak a", "my.supp", errors);
  EXPECT_EQ(all.size(), 1U);
  EXPECT_THAT(errors, ElementsAre(StartsWith("my.supp:1: "), StartsWith("my.supp:2: "), StartsWith("my.supp:3: ")));
}

TEST(Suppressions, TheBuiltInOnesAreCorrect) {
  EXPECT_FALSE(parse(built_in_suppressions()).empty());
}

}  // namespace
}  // namespace rdmacomm::softdev::check
