// Each documented failure of an operation, provoked between two connected channels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rdmacomm/channel/completion_poller.h"
#include "support/connected_pair.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using rdmacomm::testing::ConnectedPair;
using rdmacomm::testing::ConnectedPairTest;
using rdmacomm::testing::PairOptions;
using ::testing::HasSubstr;

class ErrorsTest : public ConnectedPairTest {
 protected:
  // What the left end's next completion failed with; and that it is the request posted.
  Errc failure_of(std::error_code posted, std::uint64_t id = 1) {
    EXPECT_FALSE(posted) << posted.message();
    const Completion completion = left().next();
    EXPECT_EQ(completion.id, id);
    return completion.error;
  }
  ibv_qp_state left_state() { return left().channel->adapter().query_state().value(); }
  ibv_qp_state right_state() { return right().channel->adapter().query_state().value(); }
};

TEST_F(ErrorsTest, WrongKey) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  RemoteRegion region = target->remote_region();
  region.rkey ^= 0x55;
  EXPECT_EQ(failure_of(left().channel->post_write(source->at(0), region, 1)), Errc::kRemoteAccess);
  EXPECT_EQ(left_state(), IBV_QPS_ERR);
}

TEST_F(ErrorsTest, KeyOfARegistrationGivenUp) {
  const auto source = left().buffer(8);
  auto target = right().buffer(8);
  const RemoteRegion region = target->remote_region();
  target.reset();
  const auto successor = right().buffer(8);  // may well take its place
  EXPECT_EQ(failure_of(left().channel->post_write(source->at(0), region, 1)), Errc::kRemoteAccess);
}

TEST_F(ErrorsTest, OutOfBounds) {
  // One byte beyond the end, one before the start, right behind, far away.
  for (const std::uint64_t shift : {std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{1} << 40}) {
    start();
    const auto source = left().buffer(4096);
    const auto target = right().buffer(4096);
    RemoteRegion wrong = target->remote_region();
    wrong.address += shift;
    EXPECT_EQ(failure_of(left().channel->post_write(source->at(0), wrong, 1)), Errc::kRemoteAccess);
  }
}

TEST_F(ErrorsTest, WrappingAroundTheAddressSpace) {
  const auto source = left().buffer(4096);
  const auto target = right().buffer(4096);
  const RemoteRegion wrong{0xffffffffffffff00, 4096, target->remote_region().rkey};
  EXPECT_EQ(failure_of(left().channel->post_write(source->at(0), wrong, 1)), Errc::kRemoteAccess);
}

TEST_F(ErrorsTest, BeyondTheRegionItselfIsRefusedAtPosting) {
  const auto source = left().buffer(4096);
  const auto target = right().buffer(4096);
  EXPECT_EQ(left().channel->post_write(source->at(0), target->remote_region().from(1), 1), Errc::kInvalidArgument);
  EXPECT_EQ(left_state(), IBV_QPS_RTS) << "the connection survives";
}

struct MissingAccess {
  Operation operation;
  RemoteAccess granted;
};

class MissingAccessTest : public ErrorsTest, public ::testing::WithParamInterface<MissingAccess> {};

TEST_P(MissingAccessTest, IsRefusedAndTheMemoryUntouched) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8, GetParam().granted);
  std::ranges::fill(source->bytes(), std::byte{1});
  ASSERT_FALSE(right().channel->post_recv({}, 70));
  const BufferSlice slice = source->at(0);
  const SendRequest request{.operation = GetParam().operation,
                            .local = {&slice, 1},
                            .remote = target->remote_region(),
                            .id = 1,
                            .operand = 0,
                            .swap = 5};
  std::size_t posted = 0;
  EXPECT_EQ(failure_of(left().channel->post_chain({&request, 1}, posted)), Errc::kRemoteAccess);
  EXPECT_TRUE(std::ranges::all_of(target->bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_TRUE(std::ranges::all_of(source->bytes(), [](std::byte byte) { return byte == std::byte{1}; }));
}

constexpr auto kAllBut = [](RemoteAccess access) {
  return static_cast<RemoteAccess>(7 & ~static_cast<std::uint8_t>(access));
};
INSTANTIATE_TEST_SUITE_P(Kinds, MissingAccessTest,
                         ::testing::Values(MissingAccess{Operation::kWrite, kAllBut(RemoteAccess::kWrite)},
                                           MissingAccess{Operation::kWriteImm, kAllBut(RemoteAccess::kWrite)},
                                           MissingAccess{Operation::kRead, kAllBut(RemoteAccess::kRead)},
                                           MissingAccess{Operation::kFetchAdd, kAllBut(RemoteAccess::kAtomic)},
                                           MissingAccess{Operation::kCompareSwap, kAllBut(RemoteAccess::kAtomic)},
                                           MissingAccess{Operation::kWrite, RemoteAccess::kNone},
                                           MissingAccess{Operation::kRead, RemoteAccess::kNone}),
                         [](const auto& param) { return "Case" + std::to_string(param.index); });

TEST_F(ErrorsTest, MemoryOfAnotherProtectionDomain) {
  const auto source = left().buffer(8);
  auto other = ConnectedPair::make();
  ASSERT_TRUE(other.has_value());
  const auto foreign = other->right.buffer(8);
  EXPECT_EQ(failure_of(left().channel->post_write(source->at(0), foreign->remote_region(), 1)), Errc::kRemoteAccess);
}

TEST_F(ErrorsTest, LocalMemoryThatIsNotRegistered) {
  const auto target = right().buffer(8);
  std::byte plain[8]{};
  const BufferSlice unregistered{{reinterpret_cast<std::uintptr_t>(plain), 8, 0x12345}};
  EXPECT_EQ(failure_of(left().channel->post_write(unregistered, target->remote_region(), 1)), Errc::kLocalProtection);
  start();
  EXPECT_EQ(failure_of(left().channel->post_send(unregistered, 1)), Errc::kLocalProtection);
}

TEST_F(ErrorsTest, LocalMemoryGivenUp) {
  const auto target = right().buffer(8);
  auto source = left().buffer(8);
  const BufferSlice slice = source->at(0);
  source.reset();
  EXPECT_EQ(failure_of(left().channel->post_write(slice, target->remote_region(), 1)), Errc::kLocalProtection);
}

TEST_F(ErrorsTest, LocalSliceOutOfBounds) {
  const auto target = right().buffer(8192);
  const auto source = left().buffer(4096);
  BufferSlice slice = source->at(0);
  slice.sge.length = 4097;
  EXPECT_EQ(failure_of(left().channel->post_write(slice, target->remote_region(), 1)), Errc::kLocalProtection);
  start();
  const auto again = left().buffer(4096);
  slice = again->at(0);
  slice.sge.addr -= 1;
  EXPECT_EQ(failure_of(left().channel->post_write(slice, target->remote_region(), 1)), Errc::kLocalProtection);
}

TEST_F(ErrorsTest, ReceiveMemoryGivenUpBeforeTheMessageComes) {
  for (const std::uint32_t bytes : {8U, 4096U}) {
    start();
    const auto source = left().buffer(4096);
    auto inbox = right().buffer(4096);
    ASSERT_FALSE(right().channel->post_recv(inbox->at(0), 70));
    inbox.reset();
    ASSERT_FALSE(left().channel->post_send(source->at(0).first(bytes), 1));
    const Completion received = right().next();
    EXPECT_EQ(received.error, Errc::kLocalProtection) << bytes;
    EXPECT_EQ(received.id, 70U);
    EXPECT_EQ(right_state(), IBV_QPS_ERR);
  }
}

TEST_F(ErrorsTest, ReceiveBufferTooShort) {
  for (const std::uint32_t bytes : {9U, 64U, 65'537U}) {
    start();
    const auto source = left().buffer(bytes);
    const auto inbox = right().buffer(bytes);
    ASSERT_FALSE(right().channel->post_recv(inbox->at(0).first(bytes - 1), 70));
    EXPECT_EQ(failure_of(left().channel->post_send(source->at(0), 1)), Errc::kRemoteInvalidRequest);
    const Completion received = right().next();
    EXPECT_EQ(received.error, Errc::kLocalLength);
    EXPECT_EQ(received.id, 70U);
    EXPECT_EQ(left_state(), IBV_QPS_ERR);
    EXPECT_EQ(right_state(), IBV_QPS_ERR);
  }
}

TEST_F(ErrorsTest, ReceiverNeverReady) {
  for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{2}}) {
    PairOptions options;
    options.left.rnr_retry = retries;
    options.right.min_rnr_timer = 1ms;
    start(options);
    const auto source = left().buffer(8);
    EXPECT_EQ(failure_of(left().channel->post_send(source->at(0), 1)), Errc::kRnrRetryExceeded) << int{retries};
    EXPECT_EQ(left_state(), IBV_QPS_ERR);
  }
}

TEST_F(ErrorsTest, ReceiverNeverReadyForAWriteWithImmediate) {
  PairOptions options;
  options.left.rnr_retry = 0;
  start(options);
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  EXPECT_EQ(failure_of(left().channel->post_write_imm(source->at(0), target->remote_region(), 1, 1)),
            Errc::kRnrRetryExceeded);
}

TEST_F(ErrorsTest, ReceiverReadyLaterIsNoError) {
  const auto source = left().buffer(8);
  const auto inbox = right().buffer(8);
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_FALSE(left().channel->post_send(source->at(0), i));
  EXPECT_TRUE(left().quiet());
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_FALSE(right().channel->post_recv(inbox->at(0), i));
    ASSERT_TRUE(right().next().ok());
    EXPECT_EQ(left().next().id, i);
  }
}

TEST_F(ErrorsTest, WhatFollowsAFailureIsFlushed) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  const auto inbox = left().buffer(8);
  ASSERT_FALSE(left().channel->post_recv(inbox->at(0), 50));
  const BufferSlice slice = source->at(0);
  std::vector<SendRequest> requests(
      4, {.operation = Operation::kWrite, .local = {&slice, 1}, .remote = target->remote_region()});
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].id = i;
  requests[1].remote.rkey ^= 0x55;
  requests[2].flags = PostFlags::kUnsignaled;
  std::size_t posted = 0;
  ASSERT_FALSE(left().channel->post_chain(requests, posted));
  std::vector<std::pair<std::uint64_t, Errc>> sends;
  bool receive_flushed = false;
  for (int i = 0; i < 5; ++i) {
    const Completion completion = left().next();
    if (completion.operation == Operation::kRecv) {
      receive_flushed = completion.error == Errc::kFlushed && completion.id == 50;
    } else {
      sends.emplace_back(completion.id, completion.error);
    }
  }
  EXPECT_TRUE(receive_flushed);
  EXPECT_THAT(sends, ::testing::ElementsAre(std::pair(0, Errc::kOk), std::pair(1, Errc::kRemoteAccess),
                                            std::pair(2, Errc::kFlushed), std::pair(3, Errc::kFlushed)));
  EXPECT_EQ(left().channel->outstanding_sends(), 0);
  // The device went to ERR by itself; the channel takes requests until it is told, and they are flushed as well.
  EXPECT_EQ(failure_of(left().channel->post_write(source->at(0), target->remote_region(), 9), 9), Errc::kFlushed);
}

TEST_F(ErrorsTest, FullQueuesRecover) {
  PairOptions options;
  options.left.send_depth = 4;
  options.right.recv_depth = 2;
  start(options);
  const auto source = left().buffer(8);
  const auto inbox = right().buffer(8);
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_FALSE(left().channel->post_send(source->at(0), i));
  EXPECT_EQ(left().channel->post_send(source->at(0), 4), Errc::kSendQueueFull);
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_FALSE(right().channel->post_recv(inbox->at(0), i));
  EXPECT_EQ(right().channel->post_recv(inbox->at(0), 2), Errc::kReceiveQueueFull);
  for (std::uint64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(left().next().id, i);
    EXPECT_TRUE(right().next().ok());
    ASSERT_FALSE(right().channel->post_recv(inbox->at(0), 9));
  }
  EXPECT_FALSE(left().channel->post_send(source->at(0), 4));
  EXPECT_TRUE(left().next().ok());
}

TEST(WrongState, PostingBeforeConnecting) {
  auto pair = ConnectedPair::make();
  ASSERT_TRUE(pair.has_value()) << pair.error().message();
  const auto buffer = pair->left.buffer(8);
  EXPECT_EQ(pair->left.channel->post_send(buffer->at(0), 1), Errc::kNotConnected);
  EXPECT_FALSE(pair->left.channel->post_recv(buffer->at(0), 1));
  ASSERT_TRUE(pair->connect().ok());
  EXPECT_EQ(pair->connect().code(), Errc::kWrongState);
}

// The other end has not connected yet: the request waits for it as long as retries last.
TEST(WrongState, APeerThatIsNotConnectedYet) {
  PairOptions options;
  options.left.ack_timeout = 1ms;
  options.left.retry_count = 1;
  auto pair = ConnectedPair::make(options);
  ASSERT_TRUE(pair.has_value());
  const auto buffer = pair->left.buffer(8);
  ASSERT_TRUE(pair->left.channel->adapter().connect(pair->right.channel->adapter().address()).ok());
  ASSERT_FALSE(pair->left.channel->post_send(buffer->at(0), 1));
  EXPECT_EQ(pair->left.next().error, Errc::kRetryExceeded);
}

TEST_F(ErrorsTest, APeerThatLeft) {
  PairOptions options;
  options.left.ack_timeout = 1ms;
  options.left.retry_count = 1;
  start(options);
  const auto source = left().buffer(8);
  right().channel.reset();
  EXPECT_EQ(failure_of(left().channel->post_send(source->at(0), 1)), Errc::kRetryExceeded);
  EXPECT_EQ(left_state(), IBV_QPS_ERR);
}

TEST_F(ErrorsTest, AtomicsOnAnAddressThatIsNotAligned) {
  const auto result = left().buffer(8);
  const auto target = right().buffer(16);
  EXPECT_EQ(left().channel->fetch_add(result->at(0), target->remote_region().from(4), 1, 1), Errc::kInvalidArgument);
}

TEST_F(ErrorsTest, TheSmallerMtuIsAgreedOn) {
  PairOptions options;
  options.left.mtu_bytes = 512;
  options.right.mtu_bytes = 4096;
  start(options);
  EXPECT_EQ(left().channel->adapter().path_mtu_bytes(), 512U);
  EXPECT_EQ(right().channel->adapter().path_mtu_bytes(), 512U);
  const auto source = left().buffer(10'000);
  const auto target = right().buffer(10'000);
  ASSERT_FALSE(left().channel->post_write(source->at(0), target->remote_region(), 1));
  EXPECT_TRUE(left().next().ok());
  ASSERT_FALSE(right().channel->post_read(target->at(0), source->remote_region(), 1));
  EXPECT_TRUE(right().next().ok());
}

// Ends that do not agree on the MTU (each connected by hand) fail under load, as they do on a wire.
TEST(Mtu, ADisagreementFailsOnMessagesLongerThanTheSmallerOne) {
  PairOptions options;
  options.right.mtu_bytes = 512;
  auto pair = ConnectedPair::make(options);
  ASSERT_TRUE(pair.has_value());
  verbs::QpAddress right_address = pair->right.channel->adapter().address();
  const verbs::QpAddress left_address = pair->left.channel->adapter().address();
  right_address.mtu_bytes = 4096;  // the lie
  ASSERT_TRUE(pair->left.channel->adapter().connect(right_address).ok());
  ASSERT_TRUE(pair->right.channel->adapter().connect(left_address).ok());
  const auto source = pair->left.buffer(4096);
  const auto target = pair->right.buffer(4096);
  ASSERT_FALSE(pair->left.channel->post_write(source->at(0).first(512), target->remote_region(), 1));
  EXPECT_TRUE(pair->left.next().ok());
  ASSERT_FALSE(pair->left.channel->post_write(source->at(0), target->remote_region(), 2));
  EXPECT_FALSE(pair->left.next().ok());
}

TEST(SharedQueue, HoldsSoManyQueuePairsAndNoMore) {
  auto device = RDMADevice::open({.name = "soft0"}).value();
  CompletionQueue* const queue = device->shared_completion_queue("all", {.depth = 300}).value();
  const GidEntry gid = device->choose_gid().value();
  const AdapterConfig config{.send_depth = 64, .recv_depth = 64};
  const auto first = RDMAAdapter::create(*device, *queue, *queue, gid, config);
  const auto second = RDMAAdapter::create(*device, *queue, *queue, gid, config);
  ASSERT_TRUE(first.has_value() && second.has_value());
  const auto third = RDMAAdapter::create(*device, *queue, *queue, gid, config);
  EXPECT_EQ(third.code(), Errc::kCompletionQueueFull);
  EXPECT_THAT(third.error().context, HasSubstr("of depth 300 has room for 44 more requests, a queue pair needs 64"));
}

TEST(SharedQueue, ServesSeveralChannels) {
  constexpr int kPairs = 5;
  auto left = RDMADevice::open({.name = "soft0"}).value();
  auto right = RDMADevice::open({.name = "soft0"}).value();
  CompletionQueue* const queue = left->shared_completion_queue("all", {.depth = 4096}).value();
  CompletionQueue* const other = right->shared_completion_queue("all", {.depth = 4096}).value();
  const auto make = [](RDMADevice& device, CompletionQueue& cq) {
    auto adapter = RDMAAdapter::create(device, cq, cq, device.choose_gid().value(), {});
    return RDMAChannel::create("c", std::move(adapter).value()).value();
  };
  CompletionPoller poller(*queue);
  std::vector<std::unique_ptr<RDMAChannel>> lefts;
  std::vector<std::unique_ptr<RDMAChannel>> rights;
  const auto source = RDMABuffer::allocate(*left, {.block_bytes = 64}).value();
  const auto target = RDMABuffer::allocate(*right, {.block_bytes = 64, .remote_access = RemoteAccess::kWrite}).value();
  for (int i = 0; i < kPairs; ++i) {
    lefts.push_back(make(*left, *queue));
    rights.push_back(make(*right, *other));
    poller.attach(*lefts.back());
    ASSERT_TRUE(lefts.back()->adapter().connect(rights.back()->adapter().address()).ok());
    ASSERT_TRUE(rights.back()->adapter().connect(lefts.back()->adapter().address()).ok());
  }
  for (std::uint64_t i = 0; i < kPairs; ++i) {
    ASSERT_FALSE(lefts[i]->post_write(source->at(0), target->remote_region(), 100 + i));
  }
  std::vector<Completion> completions(64);
  std::size_t count = 0;
  const Deadline deadline = Deadline::after(10s);
  for (std::size_t got = 0; got < kPairs && !deadline.passed(); got += count) {
    ASSERT_FALSE(poller.poll(std::span(completions).subspan(got), count));
    for (std::size_t i = got; i < got + count; ++i) {
      ASSERT_TRUE(completions[i].ok()) << completions[i].status().message();
      EXPECT_EQ(completions[i].channel, lefts[completions[i].id - 100].get());
    }
  }
  for (auto& channel : lefts) {
    ASSERT_TRUE(channel->begin_drain().ok());
    EXPECT_EQ(channel->outstanding_sends(), 0);
    poller.detach(*channel);
  }
}

TEST_F(ErrorsTest, DrainLeavesNothingOutstanding) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  const auto inbox = left().buffer(8);
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_FALSE(left().channel->post_recv(inbox->at(0), i));
  ASSERT_FALSE(left().channel->post_write(source->at(0), target->remote_region(), 1, PostFlags::kUnsignaled));
  ASSERT_FALSE(left().channel->post_send(source->at(0), 2));  // the peer has posted no receive: it waits
  ASSERT_FALSE(left().channel->post_send(source->at(0), 3, PostFlags::kUnsignaled));
  const Status drained = left().channel->drain(Deadline::after(10s));
  ASSERT_TRUE(drained.ok()) << drained.message();
  EXPECT_EQ(left().channel->outstanding_sends(), 0);
  EXPECT_EQ(left().channel->outstanding_recvs(), 0);
  EXPECT_EQ(left().channel->post_send(source->at(0), 2), Errc::kNotConnected);
}

TEST_F(ErrorsTest, DrainAfterSilentSuccessesOnly) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_FALSE(left().channel->post_write(source->at(0), target->remote_region(), i, PostFlags::kUnsignaled));
  }
  const Status drained = left().channel->drain(Deadline::after(10s));
  ASSERT_TRUE(drained.ok()) << drained.message();
  EXPECT_EQ(left().channel->outstanding_sends(), 0);
}

TEST_F(ErrorsTest, AFailureIsOneLineThatNamesThePeer) {
  const auto source = left().buffer(8);
  RemoteRegion region = right().buffer(8)->remote_region();  // given up at once
  ASSERT_FALSE(left().channel->post_write(source->at(0), region, 42));
  const std::string line = left().next().status().message();
  char peer[32];
  std::snprintf(peer, sizeof(peer), "to QPN 0x%06x", right().channel->adapter().address().qpn);
  EXPECT_THAT(line, HasSubstr("WRITE with id 42 on channel \"left\" " + std::string(peer) + " failed: the rkey"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace rdmacomm
