// Requests above the limits of the device or of the queue pair.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/contract_test.h"

namespace rdmacomm::contract {
namespace {

using ::testing::HasSubstr;

class LimitsTest : public ContractTest {
 protected:
  /// Creates a queue pair with `config`. Returns the error.
  Status make(const AdapterConfig& config) {
    const GidEntry gid = left().device->choose_gid().value();
    const auto queue = NativeQueue::create(*left().device, {.depth = 16}).value();
    return AdapterCore::create(*left().device, *queue, *queue, gid, config).status();
  }
  void expect_beyond(const AdapterConfig& config, int asked, int limit) {
    const Status status = make(config);
    EXPECT_EQ(status.code(), Errc::kBeyondDeviceLimit) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(asked)));
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(limit)));
  }
};

TEST_F(LimitsTest, TheDeviceReportsPlausibleLimits) {
  const DeviceLimits& limits = left().device->limits();
  EXPECT_GE(limits.max_qp_wr, 128);
  EXPECT_GE(limits.max_sge, 4);
  EXPECT_GE(limits.max_cqe, 256);
  EXPECT_GE(limits.max_message_bytes, 1U << 20);
  EXPECT_GE(limits.mtu_bytes, 256U);
}

TEST_F(LimitsTest, QueueDepthsBeyondTheDevice) {
  const int limit = left().device->limits().max_qp_wr;
  expect_beyond({.send_depth = limit + 1}, limit + 1, limit);
  expect_beyond({.recv_depth = limit + 1}, limit + 1, limit);
}

TEST_F(LimitsTest, SlicesBeyondTheDevice) {
  const int limit = left().device->limits().max_sge;
  expect_beyond({.max_send_slices = limit + 1}, limit + 1, limit);
  expect_beyond({.max_recv_slices = limit + 1}, limit + 1, limit);
}

TEST_F(LimitsTest, ReadDepthsBeyondTheDevice) {
  const DeviceLimits& limits = left().device->limits();
  const int initiator = limits.max_read_depth_initiator;
  const int responder = limits.max_read_depth;
  expect_beyond({.max_read_depth = initiator + 1}, initiator + 1, initiator);
  expect_beyond({.max_read_depth_responder = responder + 1}, responder + 1, responder);
}

TEST_F(LimitsTest, ACompletionQueueBeyondTheDevice) {
  const int limit = left().device->limits().max_cqe;
  const auto made = NativeQueue::create(*left().device, {.depth = limit + 1});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.code(), Errc::kBeyondDeviceLimit);
  EXPECT_THAT(made.error().message(), HasSubstr(std::to_string(limit)));
}

TEST_F(LimitsTest, InlineDataBeyondTheDevice) {
  const Status status = make({.send_depth = 1, .recv_depth = 1, .max_inline_bytes = 65'535});
  EXPECT_EQ(status.code(), Errc::kBeyondDeviceLimit) << status.message();
  const std::string said = status.message();
  const std::string before = "it supports at most ";
  ASSERT_THAT(said, HasSubstr(before));
  // The limit in the error text is exact: a request of that size succeeds, one byte more fails.
  const int limit = std::stoi(said.substr(said.find(before) + before.size()));
  EXPECT_TRUE(make({.send_depth = 1, .recv_depth = 1, .max_inline_bytes = limit}).ok());
  EXPECT_EQ(make({.send_depth = 1, .recv_depth = 1, .max_inline_bytes = limit + 1}).code(), Errc::kBeyondDeviceLimit);
}

TEST_F(LimitsTest, InlineDataBeyondTheQueuePair) {
  const std::uint32_t limit = left().channel->max_inline_bytes();
  const auto source = left().buffer(limit + 1);
  EXPECT_EQ(left().channel->post_send(source.at(0), {.id = 1, .flags = PostFlags::kInline}), Errc::kInvalidArgument);
  expect_state(left(), IBV_QPS_RTS);
}

TEST_F(LimitsTest, InlineDataOfAReadOrAnAtomic) {
  const auto result = left().buffer(8);
  const auto target = right().buffer(8);
  EXPECT_EQ(left().channel->post_read(result.at(0), target.remote_region(), {.id = 1, .flags = PostFlags::kInline}),
            Errc::kInvalidArgument);
  EXPECT_EQ(left().channel->post_fetch_add(result.at(0), target.remote_region(), {.addend = 1},
                                           {.id = 1, .flags = PostFlags::kInline}),
            Errc::kInvalidArgument);
}

TEST_F(LimitsTest, AMessageBeyondTheDevice) {
  const std::uint32_t limit = left().channel->max_message_bytes();
  if (limit > UINT32_MAX - 8) GTEST_SKIP() << "capability: max_msg_sz is beyond what one slice can say";
  const BufferSlice slice{left().buffer(8).at(0).address, limit + 1, 0};  // never read
  EXPECT_EQ(left().channel->post_send(slice, {.id = 1}), Errc::kInvalidArgument);
}

TEST_F(LimitsTest, AtomicsThatTheDeviceLacks) {
  if (left().device->limits().atomics) GTEST_SKIP() << "capability: the device has atomics";
  const auto made = RDMABuffer::allocate(left().device, {.remote_access = RemoteAccess::kAtomic});
  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.code(), Errc::kNotSupported);
}

}  // namespace
}  // namespace rdmacomm::contract
