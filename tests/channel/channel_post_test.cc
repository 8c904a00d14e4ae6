// Posting and its bookkeeping, request by request, on the fake device.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "channel/channel_core.h"
#include "channel/request_id.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using rdmacomm::testing::FakeVerbs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr RemoteRegion kRemote{0x10000, 1 << 20, 0x77};

class ChannelPostTest : public ::testing::Test {
 protected:
  void SetUp() override { start({}); }

  void start(const AdapterConfig& config) {
    channel_.reset();
    queue_.reset();
    buffer_ = {};
    auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    device_ = std::move(opened).value();
    buffer_ = RDMABuffer::allocate(device_, {.block_bytes = 4096, .block_count = 4}).value();
    queue_ = NativeQueue::create(*device_, {.depth = 4000}).value();
    auto adapter = AdapterCore::create(*device_, *queue_, *queue_, device_->choose_gid().value(), config);
    ASSERT_TRUE(adapter.has_value()) << adapter.error().message();
    QpAddress peer = (*adapter)->address();
    peer.qpn = 0x211;
    channel_ = ChannelCore::create("data", std::move(adapter).value()).value();
    ASSERT_TRUE(channel_->adapter().connect(peer).ok());
  }

  BufferSlice slice(std::uint32_t bytes = 8) const { return buffer_.at(0).first(bytes); }
  std::vector<Completion> poll(std::size_t limit = 64) {
    std::vector<Completion> completions(limit);
    const Polled polled = channel_->poll(completions);
    EXPECT_TRUE(polled);
    completions.resize(polled.size());
    return completions;
  }
  const FakeVerbs::Post& last_post() const { return fake_.posts.back(); }

  FakeVerbs fake_;
  std::shared_ptr<DeviceCore> device_;
  RDMABuffer buffer_;
  std::unique_ptr<NativeQueue> queue_;
  std::unique_ptr<ChannelCore> channel_;
};

// ---- Requests that reach the device

// The fake device can scatter a READ over two slices. Some devices only support one.
TEST_F(ChannelPostTest, AReadHasAtMostTheSlicesThatTheDeviceScatters) {
  EXPECT_TRUE(channel_->post_read(std::vector<BufferSlice>(2, slice()), {.address = 4096, .length = 100, .rkey = 1},
                                  {.id = 1}));
  EXPECT_EQ(
      channel_->post_read(std::vector<BufferSlice>(3, slice()), {.address = 4096, .length = 100, .rkey = 1}, {.id = 2}),
      Errc::kInvalidArgument);
}

TEST_F(ChannelPostTest, SendCarriesItsSlices) {
  const std::array list{buffer_.at(0), buffer_.at(1).first(10), buffer_.at(3).slice_unchecked(8, 1)};
  ASSERT_TRUE(channel_->post_send(list, {.id = 1, .flags = PostFlags::kFence | PostFlags::kSolicited}));
  EXPECT_EQ(last_post().wr.opcode, IBV_WR_SEND);
  EXPECT_EQ(last_post().wr.send_flags, static_cast<unsigned>(IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED));
  ASSERT_EQ(last_post().slices.size(), 3U);
  EXPECT_EQ(last_post().slices[1].addr, reinterpret_cast<std::uintptr_t>(buffer_.data()) + 4096);
  EXPECT_EQ(last_post().slices[1].length, 10U);
  EXPECT_EQ(last_post().slices[2].lkey, buffer_.lkey());
}

TEST_F(ChannelPostTest, ImmediateDataTravelsInNetworkOrder) {
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1, .immediate = 0x01020304}));
  EXPECT_EQ(last_post().wr.opcode, IBV_WR_SEND_WITH_IMM);
  EXPECT_EQ(last_post().wr.imm_data, htonl(0x01020304));
  ASSERT_TRUE(channel_->post_write(slice(), kRemote, {.id = 2, .immediate = 0x05060708}));
  EXPECT_EQ(last_post().wr.opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(last_post().wr.imm_data, htonl(0x05060708));
}

TEST_F(ChannelPostTest, RemoteOperationsNameTheirTarget) {
  ASSERT_TRUE(channel_->post_write(slice(), kRemote.slice_unchecked(16), {.id = 1, .flags = PostFlags::kInline}));
  EXPECT_EQ(last_post().wr.opcode, IBV_WR_RDMA_WRITE);
  EXPECT_EQ(last_post().wr.wr.rdma.remote_addr, 0x10010U);
  EXPECT_EQ(last_post().wr.wr.rdma.rkey, 0x77U);
  EXPECT_EQ(last_post().wr.send_flags, static_cast<unsigned>(IBV_SEND_INLINE | IBV_SEND_SIGNALED));
  ASSERT_TRUE(channel_->post_read(slice(), kRemote, {.id = 2}));
  EXPECT_EQ(last_post().wr.opcode, IBV_WR_RDMA_READ);
  EXPECT_EQ(last_post().wr.wr.rdma.remote_addr, 0x10000U);
}

TEST_F(ChannelPostTest, AtomicsCarryTheirOperands) {
  ASSERT_TRUE(channel_->post_fetch_add(slice(), kRemote, {.addend = 5}, {.id = 1}));
  EXPECT_EQ(last_post().wr.opcode, IBV_WR_ATOMIC_FETCH_AND_ADD);
  EXPECT_EQ(last_post().wr.wr.atomic.remote_addr, 0x10000U);
  EXPECT_EQ(last_post().wr.wr.atomic.rkey, 0x77U);
  EXPECT_EQ(last_post().wr.wr.atomic.compare_add, 5U);
  ASSERT_TRUE(
      channel_->post_compare_swap(slice(), kRemote.slice_unchecked(8), {.expected = 6, .desired = 7}, {.id = 2}));
  EXPECT_EQ(last_post().wr.opcode, IBV_WR_ATOMIC_CMP_AND_SWP);
  EXPECT_EQ(last_post().wr.wr.atomic.remote_addr, 0x10008U);
  EXPECT_EQ(last_post().wr.wr.atomic.compare_add, 6U);
  EXPECT_EQ(last_post().wr.wr.atomic.swap, 7U);
}

// ---- Requests that do not reach the device

TEST_F(ChannelPostTest, InvalidRequestsAreRefusedBeforeTheDevice) {
  const std::vector<BufferSlice> five(5, slice());
  const std::array eight{slice(4), buffer_.at(1).first(4)};
  const BufferSlice one = slice(8);
  BufferSlice huge = slice();
  huge.length = (1U << 30) + 1;
  const RemoteRegion wide{0x10000, std::uint64_t{1} << 40, 1};
  EXPECT_EQ(channel_->post_send(five, {.id = 1}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_send(huge, {.id = 1}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_write(huge, wide, {.id = 1}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_send(slice(65), {.id = 1, .flags = PostFlags::kInline}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_read(slice(), kRemote, {.id = 1, .flags = PostFlags::kInline}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_fetch_add(slice(), kRemote, {.addend = 1}, {.id = 1, .flags = PostFlags::kInline}),
            Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_fetch_add(slice(4), kRemote, {.addend = 1}, {.id = 1}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_compare_swap(slice(16), kRemote, {.expected = 1, .desired = 2}, {.id = 1}),
            Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_fetch_add(slice(), kRemote.slice_unchecked(4), {.addend = 1}, {.id = 1}),
            Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_write(slice(8), {0x10000, 7, 1}, {.id = 1}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_write(slice(8), {0x10000, 7, 1}, {.id = 1, .immediate = 0}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_read(slice(8), {0x10000, 7, 1}, {.id = 1}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_fetch_add(slice(8), {0x10000, 7, 1}, {.addend = 1}, {.id = 1}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_recv(five, {.id = 1}), Errc::kInvalidArgument);
  // An option that the operation does not support is an error, not ignored.
  EXPECT_EQ(channel_->post_read(slice(8), kRemote, {.id = 1, .immediate = 0}), Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_fetch_add(slice(8), kRemote, {.addend = 1}, {.id = 1, .immediate = 7}),
            Errc::kInvalidArgument);
  EXPECT_EQ(channel_->post_compare_swap(slice(8), kRemote, {.expected = 1, .desired = 2}, {.id = 1, .immediate = 7}),
            Errc::kInvalidArgument);
  for (const Operation operation : {Operation::kRecv, Operation::kRecvWriteImm, Operation::kWriteImm}) {
    const SendRequest no_request{.operation = operation, .local = eight, .remote = kRemote};
    EXPECT_EQ(channel_->post_chain({&no_request, 1}).outcome, Errc::kInvalidArgument) << to_text(operation);
  }
  for (const SendRequest& wrong :
       {SendRequest{.operation = Operation::kCompareSwap, .local = one, .remote = kRemote, .fetch_add = {.addend = 1}},
        SendRequest{.operation = Operation::kFetchAdd, .local = one, .remote = kRemote, .compare_swap = {.desired = 1}},
        SendRequest{.operation = Operation::kWrite, .local = one, .remote = kRemote, .fetch_add = {.addend = 1}}}) {
    EXPECT_EQ(channel_->post_chain({&wrong, 1}).outcome, Errc::kInvalidArgument) << to_text(wrong.operation);
  }
  const SendRequest split_result{.operation = Operation::kFetchAdd, .local = eight, .remote = kRemote};
  EXPECT_EQ(channel_->post_chain({&split_result, 1}).outcome, Errc::kInvalidArgument);
  EXPECT_EQ(fake_.calls("post_send") + fake_.calls("post_recv"), 0);
  EXPECT_EQ(channel_->outstanding_sends() + channel_->outstanding_recvs(), 0);
}

TEST_F(ChannelPostTest, TheLargestAllowedIsAccepted) {
  BufferSlice largest = slice();
  largest.length = 1U << 30;
  EXPECT_TRUE(channel_->post_send(largest, {.id = 1}));
  EXPECT_TRUE(channel_->post_send(slice(64), {.id = 1, .flags = PostFlags::kInline}));
  EXPECT_TRUE(channel_->post_write(slice(8), {0x10000, 8, 1}, {.id = 1}));
  EXPECT_TRUE(channel_->post_send(std::vector<BufferSlice>(4, slice()), {.id = 1}));
  EXPECT_TRUE(channel_->post_send({}, {.id = 1}));
}

TEST_F(ChannelPostTest, BeforeConnectingOnlyReceivesArePosted) {
  auto adapter = AdapterCore::create(*device_, *queue_, *queue_, device_->choose_gid().value(), {});
  ASSERT_TRUE(adapter.has_value());
  const auto channel = ChannelCore::create("early", std::move(adapter).value()).value();
  EXPECT_TRUE(channel->post_recv(slice(), {.id = 1}));
  EXPECT_EQ(channel->post_send(slice(), {.id = 2}), Errc::kNotConnected);
  const SendRequest request{.local = {}};
  const PostedChain posted = channel->post_chain({&request, 1});
  EXPECT_EQ(posted.outcome, Errc::kNotConnected);
  EXPECT_EQ(posted.count, 0U);
}

TEST_F(ChannelPostTest, AfterErrorNothingIsPosted) {
  ASSERT_TRUE(channel_->adapter().to_error().ok());
  EXPECT_EQ(channel_->post_send(slice(), {.id = 1}), Errc::kNotConnected);
  EXPECT_EQ(channel_->post_recv(slice(), {.id = 1}), Errc::kNotConnected);
}

TEST_F(ChannelPostTest, AChannelNeedsAQueuePairInInit) {
  EXPECT_EQ(ChannelCore::create("x", nullptr).code(), Errc::kInvalidArgument);
  auto adapter = AdapterCore::create(*device_, *queue_, *queue_, device_->choose_gid().value(), {});
  ASSERT_TRUE(adapter.has_value());
  ASSERT_TRUE((*adapter)->to_error().ok());
  const auto channel = ChannelCore::create("x", std::move(adapter).value());
  EXPECT_EQ(channel.code(), Errc::kWrongState);
  EXPECT_THAT(channel.error().context, HasSubstr("in state ERR"));
}

// ---- Full queues

TEST_F(ChannelPostTest, AFullSendQueueIsNoticedBeforeTheDevice) {
  start({.send_depth = 5, .recv_depth = 3});
  for (std::uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(channel_->post_send(slice(), {.id = i}));
  EXPECT_EQ(channel_->outstanding_sends(), 5);
  EXPECT_EQ(channel_->post_send(slice(), {.id = 9}), Errc::kSendQueueFull);
  EXPECT_EQ(fake_.calls("post_send"), 5);
  fake_.complete_send();
  EXPECT_EQ(channel_->post_send(slice(), {.id = 9}), Errc::kSendQueueFull)
      << "room comes from poll(), not from the device";
  ASSERT_EQ(poll().size(), 1U);
  EXPECT_TRUE(channel_->post_send(slice(), {.id = 9}));
  EXPECT_EQ(channel_->post_send(slice(), {.id = 9}), Errc::kSendQueueFull);
}

TEST_F(ChannelPostTest, AFullReceiveQueueIsNoticedBeforeTheDevice) {
  start({.send_depth = 5, .recv_depth = 3});
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(channel_->post_recv(slice(), {.id = i}));
  EXPECT_EQ(channel_->outstanding_recvs(), 3);
  EXPECT_EQ(channel_->post_recv(slice(), {.id = 9}), Errc::kReceiveQueueFull);
  EXPECT_EQ(fake_.calls("post_recv"), 3);
  fake_.complete_recv(8);
  ASSERT_EQ(poll().size(), 1U);
  EXPECT_TRUE(channel_->post_recv(slice(), {.id = 9}));
}

TEST_F(ChannelPostTest, ARequestThatTheDeviceRefusesIsNotOutstanding) {
  const auto refused = [this](int number) {
    fake_.fail("post_send", number);
    return channel_->post_send(slice(), {.id = 1});
  };
  EXPECT_EQ(refused(ENOMEM), Errc::kSendQueueFull);
  EXPECT_EQ(refused(EINVAL), Errc::kInvalidArgument);
  EXPECT_EQ(refused(EOPNOTSUPP), Errc::kNotSupported);
  EXPECT_EQ(refused(-ENOMEM), Errc::kSendQueueFull) << "as libsiw says it";
  EXPECT_EQ(refused(-EINVAL), Errc::kInvalidArgument);
  EXPECT_EQ(refused(EIO), std::errc::io_error);
  EXPECT_EQ(channel_->outstanding_sends(), 0);
  fake_.fail("post_recv", ENOMEM);
  EXPECT_EQ(channel_->post_recv(slice(), {.id = 1}), Errc::kReceiveQueueFull);
  EXPECT_EQ(channel_->outstanding_recvs(), 0);
  EXPECT_TRUE(channel_->post_send(slice(), {.id = 1}));
  EXPECT_EQ(request_position(last_post().wr.wr_id), 0U) << "positions go on without gaps";
}

// ---- Unsignaled requests

TEST_F(ChannelPostTest, ALaterCompletionRemovesUnsignaledRequests) {
  fake_.requests = FakeVerbs::Requests::kComplete;
  for (std::uint64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(channel_->post_send(slice(), {.id = i, .flags = PostFlags::kUnsignaled}));
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(channel_->outstanding_sends(), 3);
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 3}));
  const auto completions = poll();
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_EQ(completions[0].id, 3U);
  EXPECT_EQ(channel_->outstanding_sends(), 0);
}

TEST_F(ChannelPostTest, AQueueOfUnsignaledRequestsNeverBlocks) {
  for (const int depth : {1, 2, 3, 4, 5, 8, 100}) {
    start({.send_depth = depth});
    fake_.requests = FakeVerbs::Requests::kComplete;
    int posted = 0;
    for (int attempts = 0; attempts < 20 * depth; ++attempts) {
      const Outcome result = channel_->post_send(slice(), {.id = 1, .flags = PostFlags::kUnsignaled});
      if (result) {
        ++posted;
        continue;
      }
      ASSERT_EQ(result, Errc::kSendQueueFull);
      EXPECT_TRUE(poll().empty()) << "the library's own completions stay with it";
    }
    EXPECT_GE(posted, 10 * depth) << "depth " << depth;
  }
}

TEST_F(ChannelPostTest, TheLibraryAsksForACompletionEveryHalfQueue) {
  start({.send_depth = 8});
  fake_.requests = FakeVerbs::Requests::kComplete;
  for (std::uint64_t i = 0; i < 6; ++i)
    ASSERT_TRUE(channel_->post_send(slice(), {.id = i, .flags = PostFlags::kUnsignaled}));
  std::vector<bool> signaled;
  for (const auto& post : fake_.posts) signaled.push_back((post.wr.send_flags & IBV_SEND_SIGNALED) != 0);
  EXPECT_THAT(signaled, ElementsAre(false, false, false, false, true, false));
}

TEST_F(ChannelPostTest, TheRequestInTheLastPlaceIsSignaled) {
  start({.send_depth = 8});
  for (std::uint64_t i = 0; i < 6; ++i) ASSERT_TRUE(channel_->post_send(slice(), {.id = i}));
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 6, .flags = PostFlags::kUnsignaled}));
  EXPECT_EQ(last_post().wr.send_flags & IBV_SEND_SIGNALED, 0U);
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 7, .flags = PostFlags::kUnsignaled}));
  EXPECT_NE(last_post().wr.send_flags & IBV_SEND_SIGNALED, 0U);
}

TEST_F(ChannelPostTest, AFailedUnsignaledRequestIsReported) {
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 41, .flags = PostFlags::kUnsignaled}));
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 42, .flags = PostFlags::kUnsignaled}));
  fake_.complete_send();
  fake_.complete_send(IBV_WC_REM_ACCESS_ERR);
  const auto completions = poll();
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_EQ(completions[0].id, 42U);
  EXPECT_EQ(completions[0].error, Errc::kRemoteAccess);
  EXPECT_EQ(channel_->outstanding_sends(), 0);
}

// ---- Chains

TEST_F(ChannelPostTest, AChainIsOnePost) {
  const BufferSlice one = slice();
  std::vector<SendRequest> requests(5, {.operation = Operation::kWrite, .local = one, .remote = kRemote});
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].options.id = 100 + i;
  const PostedChain posted = channel_->post_chain(requests);
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted.count, 5U);
  EXPECT_THAT(fake_.post_lengths, ElementsAre(5));
  for (int i = 0; i < 5; ++i) fake_.complete_send();
  const auto completions = poll();
  ASSERT_EQ(completions.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(completions[i].id, 100 + i);
}

TEST_F(ChannelPostTest, ALongChainIsSeveralPosts) {
  const std::vector<SendRequest> requests(ChannelCore::kMaxChain * 2 + 1, {.operation = Operation::kSend});
  const PostedChain posted = channel_->post_chain(requests);
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted.count, requests.size());
  EXPECT_THAT(fake_.post_lengths, ElementsAre(32, 32, 1));
}

TEST_F(ChannelPostTest, AnEmptyChainIsNothing) {
  const PostedChain posted = channel_->post_chain({});
  EXPECT_TRUE(posted);
  EXPECT_EQ(posted.count, 0U);
  EXPECT_EQ(fake_.calls("post_send"), 0);
}

TEST_F(ChannelPostTest, AChainStopsWhenTheQueueIsFull) {
  start({.send_depth = 40});
  const std::vector<SendRequest> requests(50, {.operation = Operation::kSend});
  const PostedChain posted = channel_->post_chain(requests);
  EXPECT_EQ(posted.outcome, Errc::kSendQueueFull);
  EXPECT_EQ(posted.count, 40U);
  EXPECT_EQ(channel_->outstanding_sends(), 40);
}

TEST_F(ChannelPostTest, AChainStopsAtTheFirstInvalidRequest) {
  std::vector<SendRequest> requests(6, {.operation = Operation::kSend});
  requests[3].operation = Operation::kRecv;
  const PostedChain posted = channel_->post_chain(requests);
  EXPECT_EQ(posted.outcome, Errc::kInvalidArgument);
  EXPECT_EQ(posted.count, 3U);
  EXPECT_THAT(fake_.post_lengths, ElementsAre(3));
}

TEST_F(ChannelPostTest, AChainThatTheDeviceInterruptsReportsThePlace) {
  const std::vector<SendRequest> requests(6, {.operation = Operation::kSend});
  fake_.fail("post_send", ENOMEM, 5);
  const PostedChain posted = channel_->post_chain(requests);
  EXPECT_EQ(posted.outcome, Errc::kSendQueueFull);
  EXPECT_EQ(posted.count, 4U);
  EXPECT_EQ(channel_->outstanding_sends(), 4);
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 77}));
  EXPECT_EQ(request_position(last_post().wr.wr_id), 4U);
}

// After a refused request the library may request its next completion earlier than usual, but never later.
TEST_F(ChannelPostTest, ARefusalDoesNotCountAsAnUnsignaledRequest) {
  start({.send_depth = 8});
  const std::vector<SendRequest> requests(
      4, {.operation = Operation::kSend, .options = {.flags = PostFlags::kUnsignaled}});
  fake_.fail("post_send", ENOMEM, 3);
  const PostedChain posted = channel_->post_chain(requests);
  EXPECT_EQ(posted.outcome, Errc::kSendQueueFull);
  EXPECT_EQ(posted.count, 2U);
  int silent = 2;
  do {
    ASSERT_TRUE(channel_->post_send(slice(), {.id = 1, .flags = PostFlags::kUnsignaled}));
  } while ((last_post().wr.send_flags & IBV_SEND_SIGNALED) == 0 && ++silent < 8);
  EXPECT_LE(silent, 4);
}

// A refused request that would have been signaled must not make begin_drain() forget the unsignaled ones before it.
TEST_F(ChannelPostTest, ARefusalDoesNotHideUnsignaledRequestsFromADrain) {
  fake_.requests = FakeVerbs::Requests::kComplete;
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1, .flags = PostFlags::kUnsignaled}));
  fake_.fail("post_send", EIO);
  ASSERT_FALSE(channel_->post_send(slice(), {.id = 2}));
  ASSERT_TRUE(channel_->drain(Deadline::after(1s)).ok());
  EXPECT_EQ(channel_->outstanding_sends(), 0);
}

// ---- Wrapping positions

TEST_F(ChannelPostTest, RequestsKeepTheirIds) {
  start({.send_depth = 3, .recv_depth = 5});
  fake_.requests = FakeVerbs::Requests::kComplete;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    ASSERT_TRUE(channel_->post_send(slice(), {.id = i}));
    ASSERT_TRUE(channel_->post_recv(slice(), {.id = i + 5000}));
    fake_.complete_recv(8);
    const auto completions = poll();
    ASSERT_EQ(completions.size(), 2U);
    EXPECT_EQ(completions[0].id, i);
    EXPECT_EQ(completions[1].id, i + 5000);
  }
}

}  // namespace
}  // namespace rdmacomm
