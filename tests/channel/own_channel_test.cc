// Channels that a program creates itself, over soft0, without endpoint or session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdmacomm/adapter.h"
#include "rdmacomm/buffer.h"
#include "rdmacomm/channel.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class OwnChannelTest : public ::testing::Test {
 protected:
  [[nodiscard]] RDMAAdapter adapter() const { return RDMAAdapter::create(device_).value(); }

  RDMADevice device_ = RDMADevice::open({.name = "soft0"}).value();
  RDMABuffer buffer_ = RDMABuffer::allocate(device_, {.block_bytes = 64, .block_count = 2}).value();
};

TEST_F(OwnChannelTest, HasItsReceivesPostedBeforeItIsConnected) {
  const auto left = RDMAChannel::create("left", adapter()).value();
  const auto right = RDMAChannel::create("right", adapter()).value();
  const PostedRequest received = right->recv(buffer_.at(1), {.id = 3});
  EXPECT_TRUE(received.posted()) << received.posted().message();
  EXPECT_FALSE(left->connected());
  EXPECT_EQ(left->send(buffer_.at(0)).posted(), Errc::kNotConnected);
  ASSERT_TRUE(left->connect(right->address()));
  ASSERT_TRUE(right->connect(left->address()));
  EXPECT_TRUE(left->connected());
  buffer_.data()[0] = std::byte{7};
  ASSERT_TRUE(left->send(buffer_.at(0).first(5)).wait(20s));
  const auto done = received.wait(20s);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->id, 3U);
  EXPECT_EQ(done->bytes, 5U);
  EXPECT_EQ(buffer_.at(1).data()[0], std::byte{7});
}

TEST_F(OwnChannelTest, MayBeConnectedBefore) {
  RDMAAdapter left = adapter();
  RDMAAdapter right = adapter();
  ASSERT_TRUE(left.connect(right.address()));
  ASSERT_TRUE(right.connect(left.address()));
  const auto channel = RDMAChannel::create("data", std::move(left));
  ASSERT_TRUE(channel) << channel.error().message();
  EXPECT_TRUE((*channel)->connected());
}

TEST_F(OwnChannelTest, RefusesInvalidNamesAndAdapters) {
  const auto unnamed = RDMAChannel::create("", adapter());
  EXPECT_EQ(unnamed.code(), Errc::kInvalidArgument);
  EXPECT_THAT(unnamed.error().context, HasSubstr("the name of a channel has 0 bytes"));
  RDMAAdapter gone = adapter();
  const RDMAAdapter taken = std::move(gone);
  EXPECT_EQ(RDMAChannel::create("data", std::move(gone)).code(), Errc::kInvalidArgument);
}

}  // namespace
}  // namespace rdmacomm
