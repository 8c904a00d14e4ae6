// The listening socket for other hosts, which the processes of a user share.
#include "softdev/cm/host_listener.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "softdev/cm/loopback_network.h"
#include "softdev/shared/unix_packet.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

struct HostListenerTest : ::testing::Test {
  NetworkWithLoopback network;
  HostListener first;
  HostListener second;

  void SetUp() override {
    if (!network.why_not().empty()) GTEST_SKIP() << network.why_not();
    ASSERT_EQ(first.open({}), 0);
    ASSERT_EQ(second.open({}), EINPROGRESS);
  }
};

TEST_F(HostListenerTest, IsAskedForWithoutWaiting) {
  EXPECT_EQ(second.open({}), EINPROGRESS) << "there is no answer yet";
  EXPECT_TRUE(first.share());
  ASSERT_TRUE(readable(second.asking(), 20'000));
  EXPECT_EQ(second.open({}), 0);
  EXPECT_TRUE(second.is_open());
  EXPECT_EQ(second.asking(), -1);
}

TEST_F(HostListenerTest, IsMadeIfTheAskedProcessEnds) {
  first.close();
  ASSERT_TRUE(readable(second.asking(), 20'000));
  EXPECT_EQ(second.open({}), 0);
}

TEST_F(HostListenerTest, IsAskedForLaterIfThereIsNoRoomToAsk) {
  std::vector<std::unique_ptr<HostListener>> others;
  int error = EINPROGRESS;
  for (int i = 0; i < 10'000 && error == EINPROGRESS; ++i) {
    others.push_back(std::make_unique<HostListener>());
    error = others.back()->open({});
  }
  EXPECT_EQ(error, EAGAIN);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
