// Each documented failure of an operation, provoked between two connected channels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "channel/completion_queue.h"
#include "contract/raw_end.h"
#include "device/protection_domain_core.h"

namespace rdmacomm::contract {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class ErrorsTest : public ContractTest {};

TEST_F(ErrorsTest, WrongKey) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  RemoteRegion region = target.remote_region();
  region.rkey ^= 0x55;
  expect_failure(left().channel->post_write(source.at(0), region, {.id = 1}), Fault::kRemoteAccess);
  expect_error_state(left());
}

TEST_F(ErrorsTest, WrongKeyOfARead) {
  const auto target = left().buffer(8);
  const auto source = right().buffer(8);
  RemoteRegion region = source.remote_region();
  region.rkey ^= 0x5500;
  expect_failure(left().channel->post_read(target.at(0), region, {.id = 1}), Fault::kRemoteAccess);
}

TEST_F(ErrorsTest, KeyOfDeregisteredMemory) {
  const auto source = left().buffer(8);
  auto target = right().buffer(8);
  const RemoteRegion region = target.remote_region();
  target = {};
  const auto successor = right().buffer(8);  // may get the same address
  expect_failure(left().channel->post_write(source.at(0), region, {.id = 1}), Fault::kRemoteAccess);
}

/// A protection domain on the device of `end`, which must outlive it.
ProtectionDomain domain_on(const ChannelEnd& end) {
  auto domain = ProtectionDomain::create(std::shared_ptr<DeviceCore>(std::shared_ptr<void>(), end.device.get()));
  EXPECT_TRUE(domain.has_value()) << domain.status().message();
  return *domain;
}

/// This separates the clients of a server: address, key and access are correct, but the queue pair belongs to another
/// domain.
TEST_F(ErrorsTest, KeyOfAnotherProtectionDomain) {
  const auto domain = domain_on(right());
  const auto target = RDMABuffer::allocate(domain, {.block_bytes = 8, .remote_access = right().all_access()}).value();
  const auto source = left().buffer(8);
  std::ranges::fill(source.bytes(), std::byte{1});
  expect_failure(left().channel->post_write(source.at(0), target.remote_region(), {.id = 1}), Fault::kRemoteAccess);
  EXPECT_TRUE(std::ranges::all_of(target.bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
  expect_error_state(left());
}

TEST_F(ErrorsTest, KeyOfAReadOfAnotherProtectionDomain) {
  if (!has(Trait::kChecksReads)) GTEST_SKIP() << "property: READs are not checked";
  const auto domain = domain_on(right());
  const auto source = RDMABuffer::allocate(domain, {.block_bytes = 8, .remote_access = right().all_access()}).value();
  const auto target = left().buffer(8);
  expect_failure(left().channel->post_read(target.at(0), source.remote_region(), {.id = 1}), Fault::kRemoteAccess);
}

TEST_F(ErrorsTest, LocalMemoryOfAnotherProtectionDomain) {
  const auto domain = domain_on(left());
  const auto source = RDMABuffer::allocate(domain, {.block_bytes = 8}).value();
  const auto target = right().buffer(8);
  expect_failure(left().channel->post_write(source.at(0), target.remote_region(), {.id = 1}), Fault::kLocalKey);
}

TEST_F(ErrorsTest, OutOfBounds) {
  // One byte after the end, one before the start, directly behind the buffer, far away.
  for (const std::uint64_t shift : {std::uint64_t{1}, ~std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{1} << 40}) {
    start();
    const auto source = left().buffer(4096);
    const auto target = right().buffer(4096);
    RemoteRegion wrong = target.remote_region();
    wrong.address += shift;
    expect_failure(left().channel->post_write(source.at(0), wrong, {.id = 1}), Fault::kRemoteAccess);
  }
}

TEST_F(ErrorsTest, RangeThatWrapsAroundTheAddressSpace) {
  const auto source = left().buffer(4096);
  const auto target = right().buffer(4096);
  const RemoteRegion wrong{0xffffffffffffff00, 4096, target.remote_region().rkey};
  expect_failure(left().channel->post_write(source.at(0), wrong, {.id = 1}), Fault::kRemoteAccess);
}

TEST_F(ErrorsTest, BeyondTheRegionItselfIsRefusedAtPosting) {
  const auto source = left().buffer(4096);
  const auto target = right().buffer(4096);
  EXPECT_EQ(left().channel->post_write(source.at(0), target.remote_region().slice_unchecked(1), {.id = 1}),
            Errc::kInvalidArgument);
  expect_state(left(), IBV_QPS_RTS);
}

struct MissingAccess {
  Operation operation;
  RemoteAccess granted;
};

class MissingAccessTest : public ErrorsTest, public ::testing::WithParamInterface<MissingAccess> {};

TEST_P(MissingAccessTest, IsRefusedAndTheMemoryUntouched) {
  const bool atomic = GetParam().operation == Operation::kFetchAdd || GetParam().operation == Operation::kCompareSwap;
  if (atomic && !left().device->limits().atomics) GTEST_SKIP() << "capability: atomic_cap is ATOMIC_NONE";
  const bool immediate = GetParam().operation == Operation::kWriteImm;
  if (immediate && !has(Trait::kCarriesImmediateData)) GTEST_SKIP() << "property: no immediate data";
  if (GetParam().operation == Operation::kRead && !has(Trait::kChecksReads)) {
    GTEST_SKIP() << "property: READs are always answered";
  }
  const auto source = left().buffer(8);
  const auto granted = static_cast<std::uint8_t>(GetParam().granted) & static_cast<std::uint8_t>(right().all_access());
  const auto target = right().buffer(8, static_cast<RemoteAccess>(granted));
  std::ranges::fill(source.bytes(), std::byte{1});
  ASSERT_TRUE(right().channel->post_recv(inbox(right()), {.id = 70}));
  const BufferSlice slice = source.at(0);
  const SendRequest request{.operation = immediate ? Operation::kWrite : GetParam().operation,
                            .local = slice,
                            .remote = target.remote_region(),
                            .options = {.id = 1, .immediate = immediate ? Immediate(5) : Immediate()},
                            .compare_swap = {.desired = GetParam().operation == Operation::kCompareSwap ? 5U : 0U}};
  expect_failure(left().channel->post_chain({&request, 1}).outcome, Fault::kRemoteAccess);
  EXPECT_TRUE(std::ranges::all_of(target.bytes(), [](std::byte byte) { return byte == std::byte{0}; }));
  EXPECT_TRUE(std::ranges::all_of(source.bytes(), [](std::byte byte) { return byte == std::byte{1}; }));
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
  auto other = LinkedPair::make();
  ASSERT_TRUE(other.has_value());
  const auto foreign = other->ends.right.buffer(8);
  expect_failure(left().channel->post_write(source.at(0), foreign.remote_region(), {.id = 1}), Fault::kRemoteAccess);
}

TEST_F(ErrorsTest, LocalMemoryThatIsNotRegistered) {
  const auto target = right().buffer(8);
  std::byte plain[8]{};
  const BufferSlice unregistered{reinterpret_cast<std::uintptr_t>(plain), 8, 0x12345};
  expect_failure(left().channel->post_write(unregistered, target.remote_region(), {.id = 1}), Fault::kLocalKey);
  start();
  expect_failure(left().channel->post_send(unregistered, {.id = 1}), Fault::kLocalKey);
}

TEST_F(ErrorsTest, LocalMemoryThatWasDeregistered) {
  const auto target = right().buffer(8);
  auto source = left().buffer(8);
  const BufferSlice slice = source.at(0);
  source = {};
  expect_failure(left().channel->post_write(slice, target.remote_region(), {.id = 1}), Fault::kLocalKey);
}

TEST_F(ErrorsTest, LocalSliceOutOfBounds) {
  const auto target = right().buffer(8192);
  const auto source = left().buffer(4096);
  BufferSlice slice = source.at(0);
  slice.length = 4097;
  expect_failure(left().channel->post_write(slice, target.remote_region(), {.id = 1}), Fault::kLocalKey);
  start();
  const auto again = left().buffer(4096);
  slice = again.at(0);
  slice.address -= 1;
  expect_failure(left().channel->post_write(slice, target.remote_region(), {.id = 1}), Fault::kLocalKey);
}

TEST_F(ErrorsTest, ReceiveMemoryDeregisteredBeforeTheMessageArrives) {
  for (const std::uint32_t bytes : {8U, 4096U}) {
    start();
    const auto source = left().buffer(4096);
    auto inbox = right().buffer(4096);
    ASSERT_TRUE(right().channel->post_recv(inbox.at(0), {.id = 70}));
    inbox = {};
    expect_failure(left().channel->post_send(source.at(0).first(bytes), {.id = 1}), Fault::kSentToLostMemory);
    expect_received(Fault::kReceivedIntoLostMemory, 70);
    expect_error_state(right());
  }
}

TEST_F(ErrorsTest, ReceiveBufferTooShort) {
  for (const std::uint32_t bytes : {9U, 64U, 65'537U}) {
    start();
    const auto source = left().buffer(bytes);
    const auto inbox = right().buffer(bytes);
    ASSERT_TRUE(right().channel->post_recv(inbox.at(0).first(bytes - 1), {.id = 70}));
    expect_failure(left().channel->post_send(source.at(0), {.id = 1}), Fault::kSentTooMuch);
    expect_received(Fault::kReceivedTooMuch, 70);
    expect_error_state(left());
    expect_error_state(right());
  }
}

TEST_F(ErrorsTest, ReceiverNeverReady) {
  for (const std::uint8_t retries : {std::uint8_t{0}, std::uint8_t{2}}) {
    PairOptions options;
    options.left.rnr_retry = retries;
    options.right.min_rnr_timer = 1ms;
    start(options);
    const auto source = left().buffer(8);
    expect_failure(left().channel->post_send(source.at(0), {.id = 1}), Fault::kNoReceive);
    expect_error_state(left());
  }
}

TEST_F(ErrorsTest, ReceiverNeverReadyForAWriteWithImmediate) {
  if (!has(Trait::kCarriesImmediateData)) GTEST_SKIP() << "property: no immediate data";
  PairOptions options;
  options.left.rnr_retry = 0;
  start(options);
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  expect_failure(left().channel->post_write(source.at(0), target.remote_region(), {.id = 1, .immediate = 1}),
                 Fault::kNoReceive);
}

TEST_F(ErrorsTest, ReceiverReadyLaterIsNoError) {
  if (!has(Trait::kReceiverNotReadyWaits)) GTEST_SKIP() << "property: a receiver that is not ready ends the connection";
  const auto source = left().buffer(8);
  const auto inbox = right().buffer(8);
  for (std::uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(left().channel->post_send(source.at(0), {.id = i}));
  EXPECT_TRUE(left().quiet());
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(right().channel->post_recv(inbox.at(0), {.id = i}));
    ASSERT_TRUE(right().next().ok());
    EXPECT_EQ(left().next().id, i);
  }
}

// The request fails locally, so that all devices notice it at once.
TEST_F(ErrorsTest, RequestsAfterAFailureAreFlushed) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  const auto inbox = left().buffer(8);
  ASSERT_TRUE(left().channel->post_recv(inbox.at(0), {.id = 50}));
  const BufferSlice good = source.at(0);
  BufferSlice bad = good;
  bad.lkey ^= 0x5500;
  std::vector<SendRequest> requests(4,
                                    {.operation = Operation::kWrite, .local = good, .remote = target.remote_region()});
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].options.id = i;
  requests[1].local = bad;
  requests[2].options.flags = PostFlags::kUnsignaled;
  ASSERT_TRUE(left().channel->post_chain(requests));
  std::vector<Completion> sends;
  bool receive_flushed = false;
  for (int i = 0; i < 5; ++i) {
    const Completion completion = left().next();
    if (!completion.ok() && !has(Trait::kMovesItselfToError)) {
      ASSERT_TRUE(left().channel->adapter().to_error().ok());
    }
    if (completion.operation == Operation::kRecv) {
      receive_flushed = completion.error == Errc::kFlushed && completion.id == 50;
    } else {
      sends.push_back(completion);
    }
  }
  EXPECT_TRUE(receive_flushed);
  ASSERT_EQ(sends.size(), 4U);
  for (std::size_t i = 0; i < sends.size(); ++i) EXPECT_EQ(sends[i].id, i);
  EXPECT_EQ(sends[0].error, Errc::kOk);
  EXPECT_TRUE(codes_of(kind_of(*left().device), Fault::kLocalKey).contains(sends[1].error))
      << sends[1].status().message();
  EXPECT_EQ(sends[2].error, Errc::kFlushed);
  EXPECT_EQ(sends[3].error, Errc::kFlushed);
  EXPECT_EQ(left().channel->outstanding_sends(), 0);
  if (!has(Trait::kFlushesSendsPostedInError)) return;
  // The device has moved to ERR by itself. The channel accepts requests until it is informed, and they are flushed as
  // well.
  ASSERT_TRUE(left().channel->post_write(source.at(0), target.remote_region(), {.id = 9}));
  const Completion late = left().next();
  EXPECT_EQ(late.id, 9U);
  EXPECT_EQ(late.error, Errc::kFlushed);
}

TEST_F(ErrorsTest, AReceivePostedInErrorIsFlushed) {
  if (!has(Trait::kFlushesReceivesPostedInError)) GTEST_SKIP() << "property: a receive that is posted in ERR is kept";
  const auto inbox = left().buffer(8);
  RawEnd end(*left().device);
  end.to_error();
  ASSERT_EQ(end.post_recv(sge_of(inbox.at(0)), 60), 0);
  const ibv_wc late = end.next();
  EXPECT_EQ(late.wr_id, 60U);
  EXPECT_EQ(late.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(ErrorsTest, RequestsAfterARefusalAreFlushed) {
  if (!has(Trait::kAcknowledges)) GTEST_SKIP() << "property: requests complete before the peer has seen them";
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  RemoteRegion wrong = target.remote_region();
  wrong.rkey ^= 0x55;
  ASSERT_TRUE(left().channel->post_write(source.at(0), wrong, {.id = 1, .flags = PostFlags::kUnsignaled}));
  ASSERT_TRUE(left().channel->post_write(source.at(0), target.remote_region(), {.id = 2}));
  EXPECT_EQ(left().next().error, Errc::kRemoteAccess);
  const Completion second = left().next();
  EXPECT_EQ(second.id, 2U);
  EXPECT_EQ(second.error, Errc::kFlushed);
}

TEST_F(ErrorsTest, AFullSendQueueRecovers) {
  PairOptions options;
  options.left.send_depth = 4;
  start(options);
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  const auto write = [&](std::uint64_t id) {
    return left().channel->post_write(source.at(0), target.remote_region(), {.id = id});
  };
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(write(i));
  EXPECT_EQ(write(4), Errc::kSendQueueFull) << "nothing was polled";
  EXPECT_EQ(left().next().id, 0U);
  EXPECT_TRUE(write(4));
  for (std::uint64_t i = 1; i <= 4; ++i) EXPECT_EQ(left().next().id, i);
}

TEST_F(ErrorsTest, AFullReceiveQueueRecovers) {
  PairOptions options;
  options.right.recv_depth = 2;
  start(options);
  const auto source = left().buffer(8);
  const auto inbox = right().buffer(8);
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(right().channel->post_recv(inbox.at(0), {.id = i}));
  EXPECT_EQ(right().channel->post_recv(inbox.at(0), {.id = 2}), Errc::kReceiveQueueFull);
  for (std::uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(left().channel->post_send(source.at(0), {.id = i}));
    EXPECT_EQ(left().next().id, i);
    EXPECT_TRUE(right().next().ok());
    ASSERT_TRUE(right().channel->post_recv(inbox.at(0), {.id = 9}));
  }
}

TEST(WrongState, PostingBeforeConnecting) {
  auto pair = LinkedPair::make();
  ASSERT_TRUE(pair.has_value()) << pair.error().message();
  const ChannelEnd& left = pair->ends.left;
  const auto buffer = left.buffer(8);
  EXPECT_EQ(left.channel->post_send(buffer.at(0), {.id = 1}), Errc::kNotConnected);
  EXPECT_TRUE(left.channel->post_recv(buffer.at(0), {.id = 1}));
  const Status linked = pair->link();
  ASSERT_TRUE(linked.ok()) << linked.message();
  EXPECT_EQ(left.channel->adapter().connect(pair->ends.right.channel->adapter().address()).code(), Errc::kWrongState);
}

// The peer has not connected yet: the request waits for it until its retries are used up.
TEST(WrongState, APeerThatIsNotConnectedYet) {
  PairOptions options;
  options.left.ack_timeout = 1ms;
  options.left.retry_count = 1;
  auto pair = LinkedPair::make(options);
  ASSERT_TRUE(pair.has_value()) << pair.error().message();
  if (links_by_cm() || !has(kind_of(*pair->ends.left.device), Trait::kPathPerQueuePair)) {
    GTEST_SKIP() << "property: one end cannot be connected without the other";
  }
  const ChannelEnd& left = pair->ends.left;
  const auto buffer = left.buffer(8);
  ASSERT_TRUE(left.channel->adapter().connect(pair->ends.right.channel->adapter().address()).ok());
  ASSERT_TRUE(left.channel->post_send(buffer.at(0), {.id = 1}));
  EXPECT_EQ(left.next().error, Errc::kRetryExceeded);
}

TEST_F(ErrorsTest, APeerThatLeft) {
  PairOptions options;
  options.left.ack_timeout = 1ms;
  options.left.retry_count = 1;
  start(options);
  const auto source = left().buffer(8);
  right().channel.reset();
  expect_failure(left().channel->post_send(source.at(0), {.id = 1}), Fault::kPeerGone);
  expect_error_state(left());
}

TEST_F(ErrorsTest, AtomicsOnAnAddressThatIsNotAligned) {
  const auto result = left().buffer(8);
  const auto target = right().buffer(16);
  EXPECT_EQ(
      left().channel->post_fetch_add(result.at(0), target.remote_region().slice_unchecked(4), {.addend = 1}, {.id = 1}),
      Errc::kInvalidArgument);
}

TEST_F(ErrorsTest, TheSmallerMtuIsAgreedOn) {
  if (!has(Trait::kPathPerQueuePair)) GTEST_SKIP() << "property: the MTU is TCP's";
  PairOptions options;
  options.left.mtu_bytes = 256;
  options.right.mtu_bytes = 4096;
  start(options);
  EXPECT_EQ(left().channel->adapter().path_mtu_bytes(), 256U);
  EXPECT_EQ(right().channel->adapter().path_mtu_bytes(), 256U);
  const auto source = left().buffer(10'000);
  const auto target = right().buffer(10'000);
  ASSERT_TRUE(left().channel->post_write(source.at(0), target.remote_region(), {.id = 1}));
  EXPECT_TRUE(left().next().ok());
  ASSERT_TRUE(right().channel->post_read(target.at(0), source.remote_region(), {.id = 1}));
  EXPECT_TRUE(right().next().ok());
}

// Ends that use different MTUs (each connected by hand) fail under load.
TEST(Mtu, ADisagreementFailsOnMessagesLongerThanTheSmallerOne) {
  PairOptions options;
  options.left.ack_timeout = 1ms;
  options.left.retry_count = 1;
  options.left.mtu_bytes = 1024;
  options.right.mtu_bytes = 256;
  auto pair = LinkedPair::make(options);
  ASSERT_TRUE(pair.has_value()) << pair.error().message();
  const ChannelEnd& left = pair->ends.left;
  const ChannelEnd& right = pair->ends.right;
  if (links_by_cm() || !has(kind_of(*left.device), Trait::kPathPerQueuePair)) {
    GTEST_SKIP() << "property: the MTU is TCP's, or rdma_cm's";
  }
  QpAddress right_address = right.channel->adapter().address();
  const QpAddress left_address = left.channel->adapter().address();
  right_address.mtu_bytes = 4096;  // differs from the real one
  ASSERT_TRUE(left.channel->adapter().connect(right_address).ok());
  ASSERT_TRUE(right.channel->adapter().connect(left_address).ok());
  const auto source = left.buffer(4096);
  const auto target = right.buffer(4096);
  ASSERT_TRUE(left.channel->post_write(source.at(0).first(256), target.remote_region(), {.id = 1}));
  EXPECT_TRUE(left.next().ok());
  ASSERT_TRUE(left.channel->post_write(source.at(0), target.remote_region(), {.id = 2}));
  const Completion completion = left.next();
  EXPECT_FALSE(completion.ok());
  EXPECT_NE(completion.error, Errc::kTimeout);
}

TEST(SharedQueue, HoldsAtMostItsNumberOfQueuePairs) {
  auto device = TestDevice::own().choice().open().value();
  const auto queue = NativeQueue::create(*device, {.depth = 300}).value();
  const GidEntry gid = device->choose_gid().value();
  const AdapterConfig config{.send_depth = 64, .recv_depth = 64};
  std::vector<std::unique_ptr<AdapterCore>> fitting;
  for (int i = 0; i < queue->depth() / 128; ++i) {
    auto made = AdapterCore::create(*device, *queue, *queue, gid, config);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    fitting.push_back(std::move(*made));
  }
  const auto one_more = AdapterCore::create(*device, *queue, *queue, gid, config);
  EXPECT_EQ(one_more.code(), Errc::kCompletionQueueFull);
  EXPECT_THAT(one_more.error().context, HasSubstr("of depth " + std::to_string(queue->depth()) + " has room for "));
}

TEST(SharedQueue, ServesSeveralChannels) {
  constexpr int kPairs = 5;
  const TestDevice own = TestDevice::own();
  const TestDevice peers = TestDevice::peers();
  auto left = own.choice().open().value();
  auto right = peers.choice().open().value();
  const auto queue = CompletionQueue::create(left, {.depth = 4096}).value();
  const auto other = CompletionQueue::create(right, {.depth = 4096}).value();
  const auto make = [](DeviceCore& device, NativeQueue& cq) {
    auto adapter = AdapterCore::create(device, cq, cq, device.choose_gid().value(), {});
    return ChannelCore::create("c", std::move(adapter).value()).value();
  };
  std::vector<std::unique_ptr<ChannelCore>> lefts;
  std::vector<std::unique_ptr<ChannelCore>> rights;
  std::vector<PairLinker::Both> links;
  const auto source = RDMABuffer::allocate(left, {.block_bytes = 64}).value();
  const auto target = RDMABuffer::allocate(right, {.block_bytes = 64, .remote_access = RemoteAccess::kWrite}).value();
  for (int i = 0; i < kPairs; ++i) {
    lefts.push_back(make(*left, queue->native()));
    rights.push_back(make(*right, other->native()));
    queue->attach(*lefts.back());
    auto linked = PairLinker::create()->link_both(link_end(lefts.back()->adapter(), own.address),
                                                  link_end(rights.back()->adapter(), peers.address));
    ASSERT_TRUE(linked.has_value()) << linked.error().message();
    links.push_back(std::move(*linked));
  }
  for (std::uint64_t i = 0; i < kPairs; ++i) {
    ASSERT_TRUE(lefts[i]->post_write(source.at(0), target.remote_region(), {.id = 100 + i}));
  }
  std::vector<Completion> completions(64);
  const Deadline deadline = patience();
  std::size_t got = 0;
  while (got < kPairs && !deadline.passed()) {
    const Polled polled = queue->poll(completions);
    ASSERT_TRUE(polled);
    for (const Completion& each : polled) {
      ASSERT_TRUE(each.ok()) << each.status().message();
      EXPECT_EQ(each.channel, lefts[each.id - 100].get());
    }
    got += polled.size();
  }
  EXPECT_EQ(got, std::size_t{kPairs});
  for (auto& channel : lefts) {
    ASSERT_TRUE(channel->begin_drain().ok());
    EXPECT_EQ(channel->outstanding_sends(), 0);
    queue->detach(*channel);
  }
}

TEST_F(ErrorsTest, DrainLeavesNothingOutstanding) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  const auto inbox = left().buffer(8);
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(left().channel->post_recv(inbox.at(0), {.id = i}));
  ASSERT_TRUE(
      left().channel->post_write(source.at(0), target.remote_region(), {.id = 1, .flags = PostFlags::kUnsignaled}));
  ASSERT_TRUE(
      left().channel->post_send(source.at(0), {.id = 2}));  // the peer has posted no receive: it waits, or fails
  ASSERT_TRUE(left().channel->post_send(source.at(0), {.id = 3, .flags = PostFlags::kUnsignaled}));
  const Status drained = left().channel->drain(Deadline::after(10s));
  ASSERT_TRUE(drained.ok()) << drained.message();
  EXPECT_EQ(left().channel->outstanding_sends(), 0);
  EXPECT_EQ(left().channel->outstanding_recvs(), 0);
  EXPECT_EQ(left().channel->post_send(source.at(0), {.id = 2}), Errc::kNotConnected);
}

TEST_F(ErrorsTest, DrainOfSignaledRequestsAndReceives) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  const auto inbox = left().buffer(8);
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(left().channel->post_recv(inbox.at(0), {.id = i}));
  for (std::uint64_t i = 0; i < 10; ++i) {
    ASSERT_TRUE(left().channel->post_write(source.at(0), target.remote_region(), {.id = i}));
  }
  const Status drained = left().channel->drain(Deadline::after(10s));
  ASSERT_TRUE(drained.ok()) << drained.message();
  EXPECT_EQ(left().channel->outstanding_sends(), 0);
  EXPECT_EQ(left().channel->outstanding_recvs(), 0);
}

TEST_F(ErrorsTest, DrainAfterSilentSuccessesOnly) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(
        left().channel->post_write(source.at(0), target.remote_region(), {.id = i, .flags = PostFlags::kUnsignaled}));
  }
  const Status drained = left().channel->drain(Deadline::after(10s));
  ASSERT_TRUE(drained.ok()) << drained.message();
  EXPECT_EQ(left().channel->outstanding_sends(), 0);
}

TEST_F(ErrorsTest, AFailureIsOneLineThatNamesThePeer) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  BufferSlice slice = source.at(0);
  slice.lkey ^= 0x55;
  ASSERT_TRUE(left().channel->post_write(slice, target.remote_region(), {.id = 42}));
  const std::string line = left().next().status().message();
  char peer[32];
  std::snprintf(peer, sizeof(peer), "to QPN 0x%06x", right().channel->adapter().address().qpn);
  EXPECT_THAT(line, HasSubstr("WRITE with id 42 on channel \"left\" " + std::string(peer) + " failed: "));
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace rdmacomm::contract
