#include "rdmacomm/base/errc.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace rdmacomm {
namespace {

constexpr int kLast = static_cast<int>(Errc::kAborted);

TEST(Errc, OkIsNoError) {
  EXPECT_FALSE(make_error_code(Errc::kOk));
  EXPECT_STREQ(errc_category().name(), "rdmacomm");
}

TEST(Errc, EachCodeHasASentenceOfItsOwn) {
  std::set<std::string> sentences;
  for (int value = 0; value <= kLast; ++value) {
    const std::string sentence = errc_category().message(value);
    EXPECT_FALSE(sentence.empty());
    EXPECT_EQ(sentence.find("unknown"), std::string::npos) << value;
    EXPECT_TRUE(sentences.insert(sentence).second) << value << " repeats: " << sentence;
  }
}

TEST(Errc, ANumberBeyondTheLastHasASentenceToo) {
  EXPECT_EQ(errc_category().message(kLast + 1), "unknown rdmacomm error");
  EXPECT_EQ(errc_category().message(-1), "unknown rdmacomm error");
}

TEST(Errc, ConvertsToAnErrorCodeByItself) {
  const std::error_code code = Errc::kFlushed;
  EXPECT_TRUE(code);
  EXPECT_EQ(code, Errc::kFlushed);
  EXPECT_NE(code, Errc::kTimeout);
}

}  // namespace
}  // namespace rdmacomm
