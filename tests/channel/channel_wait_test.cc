// Posting a request and waiting for it, on the fake device, which completes requests on command.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "channel/channel_core.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using rdmacomm::testing::FakeVerbs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ChannelWaitTest : public ::testing::Test {
 protected:
  void SetUp() override { start({}); }

  void start(const AdapterConfig& config, bool two_queues = false) {
    channel_.reset();
    device_ = DeviceCore::open_from(FakeVerbs::api(), {}).value();
    buffer_ = RDMABuffer::allocate(device_, {}).value();
    queue_ = NativeQueue::create(*device_, {.depth = 1000}).value();
    recv_queue_ = NativeQueue::create(*device_, {.depth = 1000}).value();
    auto adapter = AdapterCore::create(*device_, *queue_, two_queues ? *recv_queue_ : *queue_,
                                       device_->choose_gid().value(), config);
    QpAddress peer = (*adapter)->address();
    peer.qpn = 0x211;
    channel_ = ChannelCore::create("data", std::move(adapter).value()).value();
    ASSERT_TRUE(channel_->adapter().connect(peer).ok());
  }
  BufferSlice slice(std::uint32_t bytes) { return buffer_.at(0).first(bytes); }
  PostedRequest send(std::uint64_t id) { return channel_->send(buffer_.at(0).first(8), {.id = id}); }
  PostedRequest recv(std::uint64_t id) { return channel_->recv(buffer_.at(0), {.id = id}); }
  /// The ids of the completions that poll() returns, with room for `room` completions in each call.
  std::vector<std::uint64_t> poll(std::size_t room = 8) {
    std::vector<Completion> completions(room);
    std::vector<std::uint64_t> ids;
    for (const Completion& each : channel_->poll(completions)) ids.push_back(each.id);
    return ids;
  }

  FakeVerbs fake_;
  std::shared_ptr<DeviceCore> device_;
  RDMABuffer buffer_;
  std::unique_ptr<NativeQueue> queue_;
  std::unique_ptr<NativeQueue> recv_queue_;
  std::unique_ptr<ChannelCore> channel_;
};

TEST_F(ChannelWaitTest, ReturnsTheCompletionOfItsRequest) {
  const PostedRequest posted = send(5);
  EXPECT_TRUE(posted.posted());
  fake_.complete_send();
  const auto done = posted.wait(1s);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->id, 5U);
  EXPECT_EQ(done->operation, Operation::kSend);
  EXPECT_THAT(poll(), IsEmpty());
}

TEST_F(ChannelWaitTest, KeepsEarlierCompletionsInOrder) {
  ASSERT_TRUE(recv(1).posted());
  ASSERT_TRUE(send(2).posted());
  ASSERT_TRUE(recv(3).posted());
  const PostedRequest last = send(4);
  fake_.complete_recv(8);
  fake_.complete_send();
  fake_.complete_recv(8);
  fake_.complete_send();
  const auto done = last.wait(1s);
  ASSERT_TRUE(done) << done.error().message();
  EXPECT_EQ(done->id, 4U);
  EXPECT_THAT(poll(2), ElementsAre(1, 2));
  ASSERT_TRUE(send(5).posted());
  fake_.complete_send();  // newer than the kept completion: comes after it
  EXPECT_THAT(poll(), ElementsAre(3));
  EXPECT_THAT(poll(), ElementsAre(5));
  EXPECT_THAT(poll(), IsEmpty());
}

TEST_F(ChannelWaitTest, RequestsWithTheSameIdAreDistinguished) {
  const PostedRequest first = send(0);
  const PostedRequest receive = recv(0);
  const PostedRequest second = send(0);
  fake_.complete_send();
  fake_.complete_recv(7);
  fake_.complete_send(IBV_WC_REM_ACCESS_ERR);
  const auto failed = second.wait(1s);
  EXPECT_EQ(failed.code(), Errc::kRemoteAccess);
  EXPECT_THAT(failed.error().context, HasSubstr("SEND with id 0 on channel \"data\""));
  EXPECT_TRUE(first.wait(1s));
  const auto received = receive.wait(1s);
  ASSERT_TRUE(received);
  EXPECT_EQ(received->bytes, 7U);
}

TEST_F(ChannelWaitTest, MayBeWaitedForAgainAfterATimeout) {
  const PostedRequest posted = send(5);
  EXPECT_EQ(posted.wait(0ms).code(), Errc::kTimeout);
  EXPECT_EQ(channel_->outstanding_sends(), 1);
  fake_.complete_send();
  EXPECT_TRUE(posted.wait(0ms));
}

TEST_F(ChannelWaitTest, ATimeoutNamesTheUsualCause) {
  EXPECT_THAT(send(5).wait(0ms).error().context, HasSubstr("is still outstanding; has the peer posted a receive?"));
  EXPECT_THAT(recv(5).wait(0ms).error().context, HasSubstr("the peer has sent no message for it"));
  const PostedRequest write = channel_->write({}, {}, {.immediate = 1});
  ASSERT_TRUE(write.posted());
  EXPECT_THAT(write.wait(0ms).error().context, HasSubstr("a WRITE with an immediate needs a receive"));
}

TEST_F(ChannelWaitTest, ReportsThatItsCompletionWasTaken) {
  const PostedRequest polled = send(5);
  fake_.complete_send();
  EXPECT_THAT(poll(), ElementsAre(5));
  EXPECT_EQ(polled.wait(1s).code(), Errc::kWrongState);
  const PostedRequest waited = send(6);
  fake_.complete_send();
  EXPECT_TRUE(waited.wait(1s));
  EXPECT_EQ(waited.wait(1s).code(), Errc::kWrongState);
}

TEST_F(ChannelWaitTest, ReportsWhyNothingWasPosted) {
  start({.send_depth = 1});
  ASSERT_TRUE(send(1).posted());
  const auto full = send(2).wait(1s);
  EXPECT_EQ(full.code(), Errc::kSendQueueFull);
  EXPECT_THAT(full.error().context, HasSubstr("SEND on channel \"data\" was not posted"));
}

// The error says why the request was not posted, with numbers. Each case violates one condition of posting.
TEST_F(ChannelWaitTest, NamesTheMistakeInARequest) {
  const auto refused = [&](const PostedRequest& request) {
    EXPECT_EQ(request.posted(), Errc::kInvalidArgument);
    const auto waited = request.wait(1s);
    EXPECT_EQ(waited.code(), Errc::kInvalidArgument);
    return waited ? std::string() : waited.error().context;
  };
  const std::vector<BufferSlice> five(5, slice(1));
  const RemoteRegion small{0x10000, 7, 1};
  const RemoteRegion wide{0x10000, std::uint64_t{1} << 40, 1};
  BufferSlice huge = slice(8);
  huge.length = (1U << 30) + 1;
  const std::string write = "WRITE on channel \"data\" was not posted: ";
  EXPECT_EQ(refused(channel_->write(slice(8), small)), write + "8 bytes are more than the remote region has (7)");
  EXPECT_EQ(refused(channel_->write(huge, wide)),
            write + "1073741825 bytes are more than max_message_bytes() (1073741824)");
  EXPECT_EQ(refused(channel_->write(slice(65), wide, {.flags = PostFlags::kInline})),
            write + "65 bytes are more than max_inline_bytes() allows with kInline (64)");
  EXPECT_EQ(refused(channel_->write(five, wide)),
            write + "5 slices are more than AdapterConfig::max_send_slices allows (4)");
  EXPECT_EQ(refused(channel_->read(slice(8), wide, {.flags = PostFlags::kInline})),
            "READ on channel \"data\" was not posted: it returns remote data, so it cannot be kInline");
  EXPECT_EQ(refused(channel_->read(slice(8), wide, {.immediate = 1})),
            "READ on channel \"data\" was not posted: only a SEND or a WRITE can carry immediate data");
  EXPECT_EQ(refused(channel_->fetch_add(slice(4), wide, {.addend = 1})),
            "FETCH_ADD on channel \"data\" was not posted: its result has 4 bytes instead of 8");
  EXPECT_EQ(refused(channel_->compare_swap(slice(8), wide.slice_unchecked(4), {.expected = 1, .desired = 2})),
            "COMPARE_SWAP on channel \"data\" was not posted: the remote address 0x10004 is not a multiple of 8");
  EXPECT_EQ(refused(channel_->send(slice(8), {.flags = PostFlags::kUnsignaled})),
            "SEND on channel \"data\" was not posted: a kUnsignaled request has no completion, so no thread can "
            "wait for it; use post_...");
  EXPECT_EQ(
      refused(channel_->recv(five)),
      "RECV on channel \"data\" was not posted: 5 slices are more than AdapterConfig::max_recv_slices allows (4)");
  EXPECT_EQ(channel_->outstanding_sends() + channel_->outstanding_recvs(), 0);
}

TEST_F(ChannelWaitTest, IsRefusedIfAThreadTakesTheCompletions) {
  channel_->set_source(nullptr, false);
  EXPECT_EQ(send(1).posted(), Errc::kWrongState);
  EXPECT_EQ(recv(2).wait(1s).code(), Errc::kWrongState);
  EXPECT_EQ(channel_->outstanding_sends() + channel_->outstanding_recvs(), 0);
}

TEST_F(ChannelWaitTest, TakesFromTwoQueues) {
  start({}, true);
  const PostedRequest receive = recv(1);
  const PostedRequest sent = send(2);
  ASSERT_TRUE(send(3).posted());
  fake_.complete_send();
  fake_.complete_send();
  fake_.complete_recv(3);
  EXPECT_TRUE(receive.wait(1s));
  EXPECT_TRUE(sent.wait(1s));
  EXPECT_THAT(poll(), ElementsAre(3));
}

TEST_F(ChannelWaitTest, DrainDeliversKeptCompletions) {
  ASSERT_TRUE(recv(1).posted());
  fake_.complete_recv(8);
  ASSERT_TRUE(send(2).posted());
  const PostedRequest last = send(3);
  fake_.complete_send();
  fake_.complete_send();
  ASSERT_TRUE(last.wait(1s));
  std::vector<std::uint64_t> drained;
  ASSERT_TRUE(channel_->drain(1s, [&](const Completion& each) { drained.push_back(each.id); }));
  EXPECT_THAT(drained, ElementsAre(1, 2));
}

TEST_F(ChannelWaitTest, AFailedCompletionQueueEndsTheWait) {
  const PostedRequest posted = send(1);
  fake_.poll_fails = true;
  EXPECT_EQ(posted.wait(1s).code(), Errc::kCompletionFailed);
}

}  // namespace
}  // namespace rdmacomm
