// Credits: no segment is sent without a posted receive at the peer, and no end waits forever.
#include "connector/cm/segment_window.h"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace rdmacomm {
namespace {

constexpr std::uint16_t kSlots = 16;

TEST(SegmentWindow, DataLeavesTheLastCreditAlone) {
  SegmentWindow window(kSlots, 3);
  EXPECT_TRUE(window.may_send());
  (void)window.sent();
  EXPECT_TRUE(window.may_send());
  (void)window.sent();
  EXPECT_FALSE(window.may_send());
}

TEST(SegmentWindow, CreditsAreGivenAtHalfOfTheReceives) {
  SegmentWindow window(kSlots, kSlots);
  for (int i = 0; i < kSlots / 2 - 1; ++i) window.posted_again();
  EXPECT_FALSE(window.should_give());
  window.posted_again();
  EXPECT_TRUE(window.should_give());
  EXPECT_EQ(window.sent(), kSlots / 2);
  EXPECT_FALSE(window.should_give());
  EXPECT_EQ(window.sent(), 0) << "each is given once";
}

TEST(SegmentWindow, MoreCreditsThanReceivesAreABrokenPeer) {
  SegmentWindow window(kSlots, kSlots);
  EXPECT_FALSE(window.received(1));
  (void)window.sent();
  EXPECT_TRUE(window.received(1));
  EXPECT_FALSE(window.received(1));
}

/// One end of a connection: messages that it still has to send, and segments in its receives.
struct Side {
  SegmentWindow window{kSlots, kSlots};
  std::deque<std::uint16_t> arrived;  // credits of each segment that was not read yet
  int to_send = 0;

  void deliver_to(Side& other) {
    other.arrived.push_back(window.sent());
    ASSERT_LE(other.arrived.size(), kSlots) << "sent to a receive that is not there";
  }
};

/// Both ends send at the same time and read at random times. In the end all messages must have been sent.
TEST(SegmentWindow, TwoSendersNeverOverrunAndNeverBlock) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  Side sides[2];
  sides[0].to_send = sides[1].to_send = 20'000;
  int idle = 0;
  while ((sides[0].to_send > 0 || sides[1].to_send > 0) && idle < 1'000) {
    const unsigned who = random() % 2;
    Side& self = sides[who];
    Side& other = sides[1 - who];
    ++idle;
    if (random() % 2 == 0 && self.to_send > 0 && self.window.may_send()) {
      --self.to_send;
      self.deliver_to(other);
      idle = 0;
    } else if (!self.arrived.empty()) {
      ASSERT_TRUE(self.window.received(self.arrived.front()));
      self.arrived.pop_front();
      self.window.posted_again();
      if (self.window.should_give()) self.deliver_to(other);
      idle = 0;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(sides[0].to_send + sides[1].to_send, 0) << "both wait for the other's credits";
}

}  // namespace
}  // namespace rdmacomm
