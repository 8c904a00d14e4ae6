// Completions, draining and queues that channels share, on the fake device.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "channel/channel_core.h"
#include "channel/completion_queue.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using rdmacomm::testing::FakeVerbs;
using ::testing::HasSubstr;

class ChannelPollTest : public ::testing::Test {
 protected:
  void SetUp() override { start(); }

  void start() {
    channel_.reset();
    queue_.reset();
    buffer_ = {};
    device_.reset();
    auto opened = DeviceCore::open_from(FakeVerbs::api(), {});
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    device_ = std::move(opened).value();
    buffer_ = RDMABuffer::allocate(device_, {}).value();
    queue_ = CompletionQueue::create(device_, {.depth = 4000}).value();
    channel_ = make("data", queue_->native(), queue_->native(), {});
  }

  std::unique_ptr<ChannelCore> make(const std::string& name, NativeQueue& send_cq, NativeQueue& recv_cq,
                                    const AdapterConfig& config) {
    auto adapter = AdapterCore::create(*device_, send_cq, recv_cq, device_->choose_gid().value(), config);
    EXPECT_TRUE(adapter.has_value()) << adapter.error().message();
    QpAddress peer = (*adapter)->address();
    peer.qpn = 0x211;
    auto channel = ChannelCore::create(name, std::move(adapter).value()).value();
    EXPECT_TRUE(channel->adapter().connect(peer).ok());
    return channel;
  }
  BufferSlice slice() const { return buffer_.at(0).first(8); }
  std::vector<Completion> poll(std::size_t limit = 64) {
    std::vector<Completion> completions(limit);
    const Polled polled = channel_->poll(completions);
    EXPECT_TRUE(polled);
    completions.resize(polled.size());
    return completions;
  }

  FakeVerbs fake_;
  std::shared_ptr<DeviceCore> device_;
  RDMABuffer buffer_;
  std::shared_ptr<CompletionQueue> queue_;
  std::unique_ptr<ChannelCore> channel_;
};

TEST_F(ChannelPollTest, AnEmptyQueueReturnsNothing) {
  EXPECT_TRUE(poll().empty());
  const Polled polled = channel_->poll({});
  EXPECT_TRUE(polled);
  EXPECT_TRUE(polled.empty());
}

TEST_F(ChannelPollTest, ASendCompletionNamesItsOperation) {
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 5}));
  fake_.complete_send();
  const auto completions = poll();
  ASSERT_EQ(completions.size(), 1U);
  EXPECT_TRUE(completions[0].ok());
  EXPECT_EQ(completions[0].id, 5U);
  EXPECT_EQ(completions[0].channel, channel_.get());
  EXPECT_EQ(completions[0].operation, Operation::kSend);
  EXPECT_EQ(completions[0].bytes, 8U);
  EXPECT_TRUE(completions[0].status().ok());
}

TEST_F(ChannelPollTest, AReceiveCompletionDescribesItsMessage) {
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 1}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 2}));
  ASSERT_TRUE(channel_->post_recv({}, {.id = 3}));
  fake_.complete_recv(5);
  fake_.complete_recv(6, IBV_WC_WITH_IMM, htonl(0x01020304));
  fake_.complete_recv(7, IBV_WC_WITH_IMM, htonl(9), IBV_WC_RECV_RDMA_WITH_IMM);
  const auto completions = poll();
  ASSERT_EQ(completions.size(), 3U);
  EXPECT_EQ(completions[0].operation, Operation::kRecv);
  EXPECT_EQ(completions[0].bytes, 5U);
  EXPECT_FALSE(completions[0].has_immediate);
  EXPECT_EQ(completions[1].operation, Operation::kRecv);
  EXPECT_TRUE(completions[1].has_immediate);
  EXPECT_EQ(completions[1].immediate, 0x01020304U);
  EXPECT_EQ(completions[2].operation, Operation::kRecvWriteImm);
  EXPECT_EQ(completions[2].bytes, 7U);
  EXPECT_EQ(completions[2].immediate, 9U);
  EXPECT_EQ(completions[2].id, 3U);
}

// In a failed ibv_wc only wr_id, status, qp_num and vendor_err are valid; the fake sets the other fields to wrong
// values.
TEST_F(ChannelPollTest, AFailedCompletionNamesItsOperationToo) {
  const RemoteRegion remote{0x1000, 4096, 0x9};
  ASSERT_TRUE(channel_->post_fetch_add(slice(), remote, {.addend = 1}, {.id = 7}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 8}));
  fake_.complete_send(IBV_WC_REM_ACCESS_ERR);
  ASSERT_TRUE(channel_->adapter().to_error().ok());
  const auto completions = poll();
  ASSERT_EQ(completions.size(), 2U);
  EXPECT_EQ(completions[0].operation, Operation::kFetchAdd);
  EXPECT_EQ(completions[0].error, Errc::kRemoteAccess);
  EXPECT_EQ(completions[0].vendor_error, 0x42U);
  EXPECT_EQ(completions[0].bytes, 0U);
  EXPECT_FALSE(completions[0].has_immediate);
  EXPECT_EQ(completions[1].operation, Operation::kRecv);
  EXPECT_EQ(completions[1].error, Errc::kFlushed);
  EXPECT_EQ(completions[1].id, 8U);
}

TEST_F(ChannelPollTest, AnErrorIsOneClearLine) {
  ASSERT_TRUE(channel_->post_write(slice(), {0x1000, 4096, 0x9}, {.id = 42}));
  fake_.complete_send(IBV_WC_REM_ACCESS_ERR);
  const Status status = poll().at(0).status();
  EXPECT_EQ(status.code(), Errc::kRemoteAccess);
  const std::string line = status.message();
  EXPECT_THAT(line, HasSubstr("WRITE with id 42 on channel \"data\" to QPN 0x000211 failed: the rkey is wrong"));
  EXPECT_THAT(line, HasSubstr("vendor error 66"));
  EXPECT_THAT(line, HasSubstr("(remote access error)"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

TEST_F(ChannelPollTest, AnErrorThatAPortMayCauseNamesThePortThatIsDown) {
  fake_.devices[0]->ports[0].state = IBV_PORT_DOWN;
  for (const ibv_wc_status cause : {IBV_WC_LOC_QP_OP_ERR, IBV_WC_RETRY_EXC_ERR, IBV_WC_WR_FLUSH_ERR}) {
    ASSERT_TRUE(channel_->post_write(slice(), {0x1000, 4096, 0x9}, {.id = 42}));
    fake_.complete_send(cause);
    const Completion failed = poll().at(0);
    EXPECT_THAT(failed.explain().message(), HasSubstr("failed: port 1 of fake0 is DOWN; check the cable"));
    const int asked = fake_.calls("query_port");
    EXPECT_THAT(failed.status().message(), HasSubstr("failed: "));
    EXPECT_EQ(fake_.calls("query_port"), asked) << "status() is for hooks, too, and asks no device";
  }
  ASSERT_TRUE(channel_->post_write(slice(), {0x1000, 4096, 0x9}, {.id = 42}));
  fake_.complete_send(IBV_WC_REM_ACCESS_ERR);
  EXPECT_THAT(poll().at(0).status().message(), HasSubstr("failed: the rkey is wrong"));
}

/// siw reports LOC_QP_OP_ERR both for requests that TCP no longer accepts and for local errors of a request.
TEST_F(ChannelPollTest, OnIwarpAQueuePairErrorIsReportedAsTheConnectionsEnd) {
  const auto line = [&] {
    EXPECT_TRUE(channel_->post_send(slice(), {.id = 42}));
    fake_.complete_send(IBV_WC_LOC_QP_OP_ERR);
    return poll().at(0).status().message();
  };
  EXPECT_THAT(line(), HasSubstr("failed: the local device refused the request"));
  fake_.devices[0]->transport_type = IBV_TRANSPORT_IWARP;
  const std::string on_iwarp = line();
  EXPECT_THAT(on_iwarp, HasSubstr("failed: its connection has ended (the endpoint's status has the reason)"));
  EXPECT_THAT(on_iwarp, HasSubstr("the local device refused the request; check lengths and slice counts"));
}

TEST_F(ChannelPollTest, AnErrorWithoutAChannelIsOneLineToo) {
  Completion completion;
  completion.error = Errc::kFlushed;
  EXPECT_THAT(completion.status().message(), HasSubstr("SEND with id 0 failed"));
}

TEST(Operation, HasANameForEach) {
  for (int i = 0; i <= static_cast<int>(Operation::kRecvWriteImm); ++i) {
    EXPECT_STRNE(to_text(static_cast<Operation>(i)), "unknown operation");
  }
}

TEST_F(ChannelPollTest, ReturnsAtMostTheSizeOfTheSpan) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(channel_->post_send(slice(), {.id = i}));
    fake_.complete_send();
  }
  EXPECT_EQ(poll(1).size(), 1U);
  EXPECT_EQ(poll(40).size(), 40U);
  const auto rest = poll(100);
  ASSERT_EQ(rest.size(), 59U);
  EXPECT_EQ(rest[0].id, 41U);
  EXPECT_EQ(rest[58].id, 99U);
}

TEST_F(ChannelPollTest, SeparateQueuesAreBothPolled) {
  const auto receives = NativeQueue::create(*device_, {.depth = 500}).value();
  const auto sends = NativeQueue::create(*device_, {.depth = 500}).value();
  channel_ = make("two queues", *sends, *receives, {});
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 2}));
  fake_.complete_send();
  fake_.complete_recv(3);
  EXPECT_EQ(poll().size(), 2U);
  channel_.reset();
}

TEST_F(ChannelPollTest, APollReturnsThePartThatItFilled) {
  for (std::uint64_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(channel_->post_send(slice(), {.id = i}));
    fake_.complete_send();
  }
  std::array<Completion, 128> out;
  std::uint64_t next = 0;
  for (const std::size_t room : {30U, 128U}) {
    const Polled polled = channel_->poll(std::span(out).first(room));
    EXPECT_EQ(polled.begin(), out.data());
    EXPECT_EQ(polled.size(), room == 30 ? 30U : 70U);
    for (const Completion& each : polled) EXPECT_EQ(each.id, next++);
  }
  EXPECT_EQ(next, 100U);
}

TEST_F(ChannelPollTest, AFailedQueueIsAnError) {
  fake_.poll_fails = true;
  std::array<Completion, 4> out;
  Polled polled = channel_->poll(out);
  EXPECT_EQ(polled.outcome(), Errc::kCompletionFailed);
  EXPECT_EQ(polled.size(), 0U);
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  const Status drained = channel_->drain(Deadline::after(1s));
  EXPECT_EQ(drained.code(), Errc::kCompletionFailed);
  EXPECT_THAT(drained.error().context, HasSubstr("\"data\""));
}

// ---- Draining

TEST_F(ChannelPollTest, DrainFlushesOutstandingRequests) {
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(channel_->post_send(slice(), {.id = i}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 10}));
  std::vector<Completion> drained;
  const auto keep = [&](const Completion& each) { drained.push_back(each); };
  ASSERT_TRUE(channel_->drain(Deadline::after(1s), keep).ok());
  ASSERT_EQ(drained.size(), 4U);
  for (const Completion& completion : drained) EXPECT_EQ(completion.error, Errc::kFlushed);
  EXPECT_EQ(channel_->outstanding_sends() + channel_->outstanding_recvs(), 0);
  EXPECT_EQ(channel_->post_send(slice(), {.id = 1}), Errc::kNotConnected);
}

TEST_F(ChannelPollTest, DrainTwiceIsHarmless) {
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  ASSERT_TRUE(channel_->drain(Deadline::after(1s)).ok());
  ASSERT_TRUE(channel_->drain(Deadline::after(1s)).ok());
}

// They succeeded without a completion. Only a later completion shows that they have left the queue.
TEST_F(ChannelPollTest, DrainWaitsForUnsignaledRequestsThatSucceededSilently) {
  fake_.requests = FakeVerbs::Requests::kComplete;
  for (std::uint64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(channel_->post_send(slice(), {.id = i, .flags = PostFlags::kUnsignaled}));
  std::vector<Completion> drained;
  const auto keep = [&](const Completion& each) { drained.push_back(each); };
  ASSERT_TRUE(channel_->drain(Deadline::after(1s), keep).ok());
  EXPECT_EQ(channel_->outstanding_sends(), 0);
  EXPECT_TRUE(drained.empty()) << "the marker is the library's own";
}

// siw never returns requests that are posted in ERR, and does not report unsignaled requests any more.
TEST_F(ChannelPollTest, DrainWaitsForNoMarkerIfTheDeviceWouldNotReturnIt) {
  fake_.devices[0]->attributes.vendor_id = 0x626d74;
  start();
  ASSERT_FALSE(device_->limits().flushes_in_error);
  fake_.requests = FakeVerbs::Requests::kComplete;
  for (std::uint64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(channel_->post_send(slice(), {.id = i, .flags = PostFlags::kUnsignaled}));
  const std::size_t posts = fake_.posts.size();
  ASSERT_TRUE(channel_->drain(Deadline::after(1s)).ok());
  EXPECT_EQ(channel_->outstanding_sends(), 0);
  EXPECT_EQ(fake_.posts.size(), posts);
}

// siw would complete requests after a READ before the READ. They are in order only if they wait for it (fence).
TEST_F(ChannelPollTest, RequestsWaitForReadsIfTheDeviceDoesNotKeepTheOrder) {
  for (const bool in_order : {true, false}) {
    if (!in_order) fake_.devices[0]->attributes.vendor_id = 0x626d74;
    start();
    ASSERT_EQ(device_->limits().completes_in_order, in_order);
    const RemoteRegion remote{.address = 4096, .length = 64, .rkey = 1};
    ASSERT_TRUE(channel_->post_read(slice(), remote, {.id = 1}));
    EXPECT_EQ(fake_.posts.back().wr.send_flags & IBV_SEND_FENCE, 0U);
    ASSERT_TRUE(channel_->post_send(slice(), {.id = 2}));
    EXPECT_EQ((fake_.posts.back().wr.send_flags & IBV_SEND_FENCE) == 0, in_order);
    ASSERT_TRUE(channel_->post_write(slice(), remote, {.id = 3}));
    EXPECT_EQ((fake_.posts.back().wr.send_flags & IBV_SEND_FENCE) == 0, in_order);
  }
}

TEST_F(ChannelPollTest, RequestsThatSuchADeviceNeverReturnsEndWithAnEmptyQueue) {
  fake_.devices[0]->attributes.vendor_id = 0x626d74;
  start();
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 2}));
  fake_.forget_requests();
  ASSERT_TRUE(channel_->drain(Deadline::after(1s)).ok());
  EXPECT_EQ(channel_->outstanding_sends() + channel_->outstanding_recvs(), 0);
}

TEST_F(ChannelPollTest, SuchRequestsEndForPollToo) {
  fake_.devices[0]->attributes.vendor_id = 0x626d74;
  start();
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 2}));
  fake_.forget_requests();
  std::array<Completion, 4> out;
  Polled polled = channel_->poll(out);
  ASSERT_TRUE(polled);
  EXPECT_EQ(channel_->outstanding_sends(), 1) << "no drain has begun: it may still come";
  ASSERT_TRUE(channel_->begin_drain().ok());
  EXPECT_FALSE(channel_->drained()) << "what there was to tell may be in the queue";
  polled = channel_->poll(out);
  ASSERT_TRUE(polled);
  EXPECT_TRUE(channel_->drained());
}

TEST_F(ChannelPollTest, SuchRequestsEndOnASharedQueueToo) {
  fake_.devices[0]->attributes.vendor_id = 0x626d74;
  start();
  queue_->attach(*channel_);
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 2}));
  ASSERT_TRUE(channel_->begin_drain().ok());
  std::array<Completion, 4> out;
  Polled polled = queue_->poll(out);
  ASSERT_TRUE(polled);
  EXPECT_EQ(polled.size(), 2U) << "what it does tell is delivered first";
  EXPECT_TRUE(channel_->drained());
  const auto silent = make("silent", queue_->native(), queue_->native(), {});
  queue_->attach(*silent);
  ASSERT_TRUE(silent->post_recv(slice(), {.id = 3}));
  fake_.forget_requests();
  polled = queue_->poll(out);
  ASSERT_TRUE(polled);
  EXPECT_FALSE(silent->drained());
  ASSERT_TRUE(silent->begin_drain().ok());
  EXPECT_FALSE(silent->drained());
  polled = queue_->poll(out);
  ASSERT_TRUE(polled);
  EXPECT_TRUE(silent->drained());
  queue_->detach(*silent);
}

TEST_F(ChannelPollTest, WithoutAMarkerDrainStillWaitsForSignaledRequests) {
  fake_.devices[0]->attributes.vendor_id = 0x626d74;
  start();
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 2, .flags = PostFlags::kUnsignaled}));
  ASSERT_TRUE(channel_->begin_drain().ok());
  EXPECT_EQ(channel_->outstanding_sends(), 1);
  std::vector<Completion> drained;
  const auto keep = [&](const Completion& each) { drained.push_back(each); };
  ASSERT_TRUE(channel_->drain(Deadline::after(1s), keep).ok());
  EXPECT_EQ(drained.size(), 2U);
  EXPECT_EQ(channel_->outstanding_sends(), 0);
}

TEST_F(ChannelPollTest, DrainReportsUnsignaledRequestsThatAreFlushed) {
  for (std::uint64_t i = 0; i < 3; ++i)
    ASSERT_TRUE(channel_->post_send(slice(), {.id = i, .flags = PostFlags::kUnsignaled}));
  std::vector<Completion> drained;
  const auto keep = [&](const Completion& each) { drained.push_back(each); };
  ASSERT_TRUE(channel_->drain(Deadline::after(1s), keep).ok());
  ASSERT_EQ(drained.size(), 3U);
  EXPECT_EQ(drained[2].id, 2U);
}

TEST_F(ChannelPollTest, DrainHasRoomForItsMarkerInAFullQueue) {
  for (int depth = 1; depth <= 9; ++depth) {
    for (int filled = 0; filled <= depth; ++filled) {
      channel_ = make("small", queue_->native(), queue_->native(), {.send_depth = depth});
      fake_.requests = FakeVerbs::Requests::kComplete;
      for (int i = 0; i < filled; ++i)
        ASSERT_TRUE(channel_->post_send(slice(), {.id = 1, .flags = PostFlags::kUnsignaled}));
      ASSERT_TRUE(channel_->drain(Deadline::after(1s)).ok()) << filled << " of " << depth;
      EXPECT_EQ(channel_->outstanding_sends(), 0);
    }
  }
}

TEST_F(ChannelPollTest, DrainReportsThatTheDeviceRefusesTheMarker) {
  fake_.requests = FakeVerbs::Requests::kComplete;
  fake_.refuses_posts_in_error = true;
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1, .flags = PostFlags::kUnsignaled}));
  const Status drained = channel_->drain(Deadline::after(1s));
  EXPECT_EQ(drained.code(), Errc::kInvalidArgument);
  EXPECT_THAT(drained.error().context, HasSubstr("accepts no request in state ERR"));
}

TEST_F(ChannelPollTest, DrainEndsAtItsDeadline) {
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 1}));
  ASSERT_TRUE(channel_->adapter().to_error().ok());
  fake_.completions.clear();  // a device that loses completions
  const Status drained = channel_->drain(Deadline::after(1ms));
  EXPECT_EQ(drained.code(), Errc::kTimeout);
  EXPECT_THAT(drained.error().context, HasSubstr("1 sends and 1 receives outstanding"));
}

TEST_F(ChannelPollTest, DrainReturnsTheErrorOfTheMoveToErr) {
  fake_.fail("modify_qp", EIO);
  EXPECT_EQ(channel_->drain(Deadline::after(1s)).code(), std::errc::io_error);
}

TEST_F(ChannelPollTest, DestroyingAChannelWithRequestsOutstandingIsFine) {
  const int before = fake_.live();
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 1}));
  channel_.reset();
  EXPECT_EQ(fake_.live(), before - 1);
  EXPECT_TRUE(queue_->native().reserve(4000).ok()) << "room was not given back";
}

// ---- A queue shared by many channels

TEST_F(ChannelPollTest, ASharedQueueAssignsCompletionsToTheirChannels) {
  const auto other = make("other", queue_->native(), queue_->native(), {});
  queue_->attach(*other);
  queue_->attach(*channel_);
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  ASSERT_TRUE(other->post_send(slice(), {.id = 2, .flags = PostFlags::kUnsignaled}));
  ASSERT_TRUE(other->post_send(slice(), {.id = 3}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 4}));
  for (int i = 0; i < 3; ++i) fake_.complete_send();
  fake_.complete_recv(8);
  std::array<Completion, 8> out;
  Polled polled = queue_->poll(out);
  ASSERT_TRUE(polled);
  ASSERT_EQ(polled.size(), 3U);
  EXPECT_EQ(out[0].channel, channel_.get());
  EXPECT_EQ(out[1].channel, other.get());
  EXPECT_EQ(out[1].id, 3U);
  EXPECT_EQ(out[2].channel, channel_.get());
  EXPECT_EQ(out[2].operation, Operation::kRecv);
  EXPECT_EQ(other->outstanding_sends(), 0);
}

TEST_F(ChannelPollTest, CompletionsOfADetachedChannelAreDropped) {
  const auto other = make("other", queue_->native(), queue_->native(), {});
  queue_->attach(*channel_);
  queue_->attach(*other);
  for (std::uint64_t i = 0; i < 40; ++i) {
    ASSERT_TRUE(channel_->post_send(slice(), {.id = i}));
    ASSERT_TRUE(other->post_send(slice(), {.id = i}));
    fake_.complete_send();
    fake_.complete_send();
  }
  queue_->detach(*channel_);
  std::array<Completion, 64> out;
  Polled polled = queue_->poll(out);
  ASSERT_TRUE(polled);
  EXPECT_EQ(polled.size(), 40U);
  for (std::size_t i = 0; i < polled.size(); ++i) EXPECT_EQ(out[i].channel, other.get());
}

TEST_F(ChannelPollTest, ASharedQueueReportsAFailedQueue) {
  fake_.poll_fails = true;
  std::array<Completion, 4> out;
  Polled polled = queue_->poll(out);
  EXPECT_EQ(polled.outcome(), Errc::kCompletionFailed);
  EXPECT_EQ(polled.size(), 0U);
}

TEST_F(ChannelPollTest, ASharedQueuePollsUpToTheGivenNumberOfTimes) {
  queue_->attach(*channel_);
  std::array<Completion, 4> out;
  Polled polled;
  fake_.polls = 0;
  polled = queue_->poll(out, 10);
  ASSERT_TRUE(polled);
  EXPECT_EQ(polled.size(), 0U);
  EXPECT_EQ(fake_.polls, 10U);
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1}));
  fake_.complete_send();
  polled = queue_->poll(out, 10);
  ASSERT_TRUE(polled);
  EXPECT_EQ(polled.size(), 1U);
  EXPECT_EQ(fake_.polls, 11U);
  polled = queue_->poll(out, 0);
  ASSERT_TRUE(polled);
  EXPECT_EQ(fake_.polls, 12U) << "0 is once, not for ever";
}

TEST_F(ChannelPollTest, AttachingAChannelDoesNotWaitForAllPolls) {
  std::thread thread([&] {
    std::array<Completion, 4> out;
    EXPECT_TRUE(queue_->poll(out, std::numeric_limits<std::uint32_t>::max()));  // for more than a minute
  });
  while (fake_.polls == 0) std::this_thread::yield();
  queue_->attach(*channel_);
  thread.join();
  EXPECT_LT(fake_.polls, std::numeric_limits<std::uint32_t>::max());
}

TEST_F(ChannelPollTest, AChannelOnASharedQueueDrainsThroughThePoller) {
  fake_.requests = FakeVerbs::Requests::kComplete;
  queue_->attach(*channel_);
  ASSERT_TRUE(channel_->post_send(slice(), {.id = 1, .flags = PostFlags::kUnsignaled}));
  ASSERT_TRUE(channel_->post_recv(slice(), {.id = 2}));
  ASSERT_TRUE(channel_->begin_drain().ok());
  std::array<Completion, 8> out;
  Polled polled = queue_->poll(out);
  ASSERT_TRUE(polled);
  ASSERT_EQ(polled.size(), 1U);
  EXPECT_EQ(out[0].id, 2U);
  EXPECT_EQ(channel_->outstanding_sends() + channel_->outstanding_recvs(), 0);
}

}  // namespace
}  // namespace rdmacomm
