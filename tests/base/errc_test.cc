#include "rdmacomm/errc.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

namespace rdmacomm {
namespace {

constexpr int kLast = kMaxErrc;

TEST(Errc, OkIsNoError) {
  EXPECT_FALSE(make_error_code(Errc::kOk));
  EXPECT_STREQ(errc_category().name(), "rdmacomm");
}

TEST(Errc, EachCodeHasItsOwnSentence) {
  std::set<std::string> sentences;
  for (int value = 0; value <= kLast; ++value) {
    const std::string sentence = errc_category().message(value);
    EXPECT_FALSE(sentence.empty());
    EXPECT_EQ(sentence.find("unknown"), std::string::npos) << value;
    EXPECT_TRUE(sentences.insert(sentence).second) << value << " repeats: " << sentence;
  }
}

/// The numbers are sent between processes of different releases: this list may grow, but no entry may change.
TEST(Errc, NumbersDoNotChange) {
  const std::pair<int, Errc> numbers[] = {{0, Errc::kOk},
                                          {1, Errc::kInvalidArgument},
                                          {2, Errc::kBeyondDeviceLimit},
                                          {3, Errc::kLockedMemoryLimit},
                                          {4, Errc::kNoDevice},
                                          {5, Errc::kNoActivePort},
                                          {6, Errc::kNoUsableGid},
                                          {7, Errc::kWrongState},
                                          {8, Errc::kNotSupported},
                                          {9, Errc::kSendQueueFull},
                                          {10, Errc::kReceiveQueueFull},
                                          {11, Errc::kNotConnected},
                                          {12, Errc::kCompletionQueueFull},
                                          {13, Errc::kLocalLength},
                                          {14, Errc::kLocalProtection},
                                          {15, Errc::kLocalQueuePair},
                                          {16, Errc::kRemoteAccess},
                                          {17, Errc::kRemoteInvalidRequest},
                                          {18, Errc::kRemoteOperation},
                                          {19, Errc::kRnrRetryExceeded},
                                          {20, Errc::kRetryExceeded},
                                          {21, Errc::kFlushed},
                                          {22, Errc::kCompletionFailed},
                                          {23, Errc::kDeviceLost},
                                          {24, Errc::kTimeout},
                                          {25, Errc::kPeerLost},
                                          {26, Errc::kPeerRefused},
                                          {27, Errc::kVersionMismatch},
                                          {28, Errc::kBadMessage},
                                          {29, Errc::kIncompatiblePeer},
                                          {30, Errc::kStopped},
                                          {31, Errc::kPoolExhausted},
                                          {32, Errc::kAborted},
                                          {33, Errc::kHookFailed},
                                          {34, Errc::kServerBusy},
                                          {35, Errc::kPeerClosed}};
  EXPECT_EQ(std::size(numbers), static_cast<std::size_t>(kLast) + 1);
  for (const auto& [number, code] : numbers) {
    EXPECT_EQ(static_cast<int>(code), number) << make_error_code(code).message();
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
