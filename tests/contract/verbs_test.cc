// Every operation between two connected channels, byte by byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "contract/contract_test.h"

namespace rdmacomm::contract {
namespace {

constexpr std::byte kGuard{0xa5};
constexpr std::size_t kGuardBytes = 64;

// A pattern without a short period. Each seed gives another pattern.
std::byte pattern(std::size_t index, unsigned seed) {
  const std::uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15U + seed * 0xbf58476d1ce4e5b9U;
  return static_cast<std::byte>(mixed >> 56);
}
void fill(std::span<std::byte> bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(i, seed);
}
::testing::AssertionResult has_pattern(std::span<const std::byte> bytes, unsigned seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == pattern(i, seed)) continue;
    return ::testing::AssertionFailure() << "byte " << i << " of " << bytes.size() << " is "
                                         << static_cast<int>(bytes[i]) << ", expected "
                                         << static_cast<int>(pattern(i, seed));
  }
  return ::testing::AssertionSuccess();
}
::testing::AssertionResult is_all(std::span<const std::byte> bytes, std::byte value) {
  const auto found = std::ranges::find_if(bytes, [value](std::byte byte) { return byte != value; });
  if (found == bytes.end()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "byte " << found - bytes.begin() << " changed";
}

// Sizes around the thresholds of devices: nothing, words, inline and eager limits, multiples of MTUs, above 64 KiB.
constexpr std::array<std::uint32_t, 23> kSizes = {
    0, 1, 7, 8, 9, 47, 48, 49, 64, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 8191, 8192, 8193, 65537, 1 << 20};

class VerbsBySizeTest : public ContractTest {
 protected:
  /// Runs `body` for each size, with new buffers.
  void each_size(const std::function<void()>& body) {
    for (const std::uint32_t size : kSizes) {
      SCOPED_TRACE(std::to_string(size) + " bytes");
      size_ = size;
      source_ = left().buffer(size + 2 * kGuardBytes);
      target_ = right().buffer(size + 2 * kGuardBytes);
      std::ranges::fill(target_.bytes(), kGuard);
      std::ranges::fill(source_.bytes(), kGuard);
      body();
      if (HasFatalFailure()) return;
    }
  }
  std::uint32_t size() const { return size_; }
  // The payload is in the middle of a buffer, with guard bytes before and after it.
  std::span<std::byte> payload(const RDMABuffer& buffer) const { return buffer.bytes().subspan(kGuardBytes, size()); }
  BufferSlice slice(const RDMABuffer& buffer) const { return buffer.slice(kGuardBytes, size()).value(); }
  RemoteRegion region(const RDMABuffer& buffer) const {
    return buffer.remote_region().slice(kGuardBytes, size()).value();
  }
  static void expect_guards(const RDMABuffer& buffer) {
    EXPECT_TRUE(is_all(buffer.bytes().first(kGuardBytes), kGuard));
    EXPECT_TRUE(is_all(buffer.bytes().last(kGuardBytes), kGuard));
  }
  void expect_done(std::uint64_t id, Operation operation) {
    const Completion completion = left().next();
    ASSERT_TRUE(completion.ok()) << completion.status().message();
    EXPECT_EQ(completion.id, id);
    EXPECT_EQ(completion.operation, operation);
    EXPECT_EQ(completion.bytes, size());
  }

  std::uint32_t size_ = 0;
  RDMABuffer source_;
  RDMABuffer target_;
};

TEST_F(VerbsBySizeTest, Send) {
  each_size([this] {
    fill(payload(source_), 1);
    ASSERT_TRUE(right().channel->post_recv(slice(target_), {.id = 70}));
    ASSERT_TRUE(left().channel->post_send(slice(source_), {.id = 7}));
    expect_done(7, Operation::kSend);
    const Completion received = right().next();
    ASSERT_TRUE(received.ok()) << received.status().message();
    EXPECT_EQ(received.id, 70U);
    EXPECT_EQ(received.operation, Operation::kRecv);
    EXPECT_EQ(received.bytes, size());
    EXPECT_FALSE(received.has_immediate);
    EXPECT_TRUE(has_pattern(payload(target_), 1));
    expect_guards(target_);
  });
}

TEST_F(VerbsBySizeTest, SendWithImmediate) {
  if (!has(Trait::kCarriesImmediateData)) GTEST_SKIP() << "property: no immediate data";
  each_size([this] {
    fill(payload(source_), 2);
    ASSERT_TRUE(right().channel->post_recv(slice(target_), {.id = 70}));
    ASSERT_TRUE(left().channel->post_send(slice(source_), {.id = 7, .immediate = 0xdeadbeef}));
    expect_done(7, Operation::kSend);
    const Completion received = right().next();
    ASSERT_TRUE(received.ok()) << received.status().message();
    EXPECT_TRUE(received.has_immediate);
    EXPECT_EQ(received.immediate, 0xdeadbeefU);
    EXPECT_EQ(received.bytes, size());
    EXPECT_TRUE(has_pattern(payload(target_), 2));
    expect_guards(target_);
  });
}

TEST_F(VerbsBySizeTest, Write) {
  each_size([this] {
    fill(payload(source_), 3);
    ASSERT_TRUE(left().channel->post_write(slice(source_), region(target_), {.id = 7}));
    expect_done(7, Operation::kWrite);
    fence();
    EXPECT_TRUE(has_pattern(payload(target_), 3));
    expect_guards(target_);
    EXPECT_TRUE(right().quiet());
  });
}

TEST_F(VerbsBySizeTest, WriteWithImmediate) {
  if (!has(Trait::kCarriesImmediateData)) GTEST_SKIP() << "property: no immediate data";
  each_size([this] {
    fill(payload(source_), 4);
    ASSERT_TRUE(right().channel->post_recv(inbox(right()), {.id = 70}));
    ASSERT_TRUE(left().channel->post_write(slice(source_), region(target_), {.id = 7, .immediate = 0x01020304}));
    expect_done(7, Operation::kWriteImm);
    const Completion received = right().next();
    ASSERT_TRUE(received.ok()) << received.status().message();
    EXPECT_EQ(received.id, 70U);
    EXPECT_EQ(received.operation, Operation::kRecvWriteImm);
    EXPECT_EQ(received.bytes, size());
    EXPECT_EQ(received.immediate, 0x01020304U);
    EXPECT_TRUE(has_pattern(payload(target_), 4));
    expect_guards(target_);
  });
}

TEST_F(VerbsBySizeTest, Read) {
  each_size([this] {
    fill(payload(target_), 5);
    ASSERT_TRUE(left().channel->post_read(slice(source_), region(target_), {.id = 7}));
    expect_done(7, Operation::kRead);
    EXPECT_TRUE(has_pattern(payload(source_), 5));
    expect_guards(source_);
    EXPECT_TRUE(right().quiet());
  });
}

// The same payload in slices of unequal length at both ends. If the device accepts empty slices, one of them is empty.
TEST_F(VerbsBySizeTest, SlicesScatterAndGather) {
  each_size([this] {
    const std::uint32_t first = size() / 3;
    const std::uint32_t second = size() - first;
    const BufferSlice from = slice(source_);
    const BufferSlice to = slice(target_);
    const BufferSlice to_read = from;
    std::vector<BufferSlice> gather{from.first(first), from.slice_unchecked(first, second)};
    if (has(Trait::kTakesEmptySlices)) {
      gather.insert(gather.begin() + 1, from.first(0));
    } else if (first == 0) {
      return;
    }
    const std::array scatter{to.first(second), to.slice_unchecked(second, first)};
    fill(payload(source_), 6);

    ASSERT_TRUE(right().channel->post_recv(scatter, {.id = 70}));
    ASSERT_TRUE(left().channel->post_send(gather, {.id = 7}));
    expect_done(7, Operation::kSend);
    EXPECT_EQ(right().next().bytes, size());
    EXPECT_TRUE(has_pattern(payload(target_), 6));

    fill(payload(source_), 8);
    ASSERT_TRUE(left().channel->post_write(gather, region(target_), {.id = 8}));
    expect_done(8, Operation::kWrite);
    fence();
    EXPECT_TRUE(has_pattern(payload(target_), 8));

    // Some devices can scatter the answer to a READ over fewer slices than they can gather.
    const int most = attributes().max_sge_rd;
    const std::span<const BufferSlice> whole(&to_read, 1);
    fill(payload(target_), 9);
    ASSERT_TRUE(left().channel->post_read(most < 3 ? whole : std::span(gather), region(target_), {.id = 9}));
    expect_done(9, Operation::kRead);
    EXPECT_TRUE(has_pattern(payload(source_), 9));
    expect_guards(source_);
    expect_guards(target_);
  });
}

class VerbsTest : public ContractTest {
 protected:
  // Loads the 8 bytes that peers change by atomics.
  static std::uint64_t word(const RDMABuffer& buffer) {
    std::uint64_t value = 0;
    std::memcpy(&value, buffer.data(), sizeof(value));
    return value;
  }
  static void set_word(const RDMABuffer& buffer, std::uint64_t value) {
    std::memcpy(buffer.data(), &value, sizeof(value));
  }
};

class AtomicsTest : public VerbsTest {
 protected:
  void SetUp() override {
    VerbsTest::SetUp();
    if (HasFatalFailure()) return;
    if (!left().device->limits().atomics) GTEST_SKIP() << "capability: atomic_cap is ATOMIC_NONE";
  }
};

TEST_F(AtomicsTest, FetchAddReturnsTheOldValueAndAdds) {
  const auto result = left().buffer(8);
  const auto counter = right().buffer(8);
  set_word(counter, 0xffffffffffffffff);
  ASSERT_TRUE(left().channel->post_fetch_add(result.at(0), counter.remote_region(), {.addend = 3}, {.id = 7}));
  const Completion completion = left().next();
  ASSERT_TRUE(completion.ok()) << completion.status().message();
  EXPECT_EQ(completion.operation, Operation::kFetchAdd);
  EXPECT_EQ(completion.bytes, 8U);
  EXPECT_EQ(word(result), 0xffffffffffffffff);
  EXPECT_EQ(word(counter), 2U);
}

TEST_F(AtomicsTest, CompareSwapReplacesOnlyTheExpectedValue) {
  const auto result = left().buffer(8);
  const auto target = right().buffer(8);
  set_word(target, 5);
  ASSERT_TRUE(left().channel->post_compare_swap(result.at(0), target.remote_region(), {.expected = 4, .desired = 9},
                                                {.id = 1}));
  ASSERT_TRUE(left().next().ok());
  EXPECT_EQ(word(result), 5U);
  EXPECT_EQ(word(target), 5U);
  ASSERT_TRUE(left().channel->post_compare_swap(result.at(0), target.remote_region(), {.expected = 5, .desired = 9},
                                                {.id = 2}));
  const Completion completion = left().next();
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion.operation, Operation::kCompareSwap);
  EXPECT_EQ(word(result), 5U);
  EXPECT_EQ(word(target), 9U);
}

// Both ends add to one counter at the same time. For one of them the counter is in local memory, accessed through its
// channel.
TEST_F(AtomicsTest, AtomicsOfBothEndsLoseNothing) {
  const int adds = static_cast<int>(rounds(2000));
  const auto counter = right().buffer(8);
  const auto own_counter = left().buffer(8);
  const auto run = [adds](ChannelEnd& end, const RemoteRegion& region) {
    const auto result = end.buffer(8);
    for (int i = 0; i < adds; ++i) {
      if (!end.channel->post_fetch_add(result.at(0), region, {.addend = 1}, {.id = 1})) return false;
      if (!end.next().ok()) return false;
    }
    return true;
  };
  bool left_ok = false;
  std::thread adder([&] { left_ok = run(left(), counter.remote_region()); });
  const bool right_ok = run(right(), own_counter.remote_region());
  adder.join();
  EXPECT_TRUE(left_ok && right_ok);
  EXPECT_EQ(word(counter), static_cast<std::uint64_t>(adds));
  EXPECT_EQ(word(own_counter), static_cast<std::uint64_t>(adds));
}

TEST_F(VerbsTest, InlinePayloadMayBeOverwrittenAtOnce) {
  const std::uint32_t bytes = left().channel->max_inline_bytes();
  const auto source = left().buffer(bytes);
  const auto target = right().buffer(bytes * 2);
  for (std::uint32_t size = 0; size <= bytes; ++size) {
    fill(source.bytes(), size);
    ASSERT_TRUE(right().channel->post_recv(target.slice(0, bytes).value(), {.id = 70}));
    ASSERT_TRUE(left().channel->post_send(source.at(0).first(size), {.id = 7, .flags = PostFlags::kInline}));
    ASSERT_TRUE(left().channel->post_write(source.at(0).first(size), target.remote_region().slice_unchecked(bytes),
                                           {.id = 8, .flags = PostFlags::kInline}));
    std::ranges::fill(source.bytes(), kGuard);
    ASSERT_TRUE(left().next().ok());
    ASSERT_TRUE(left().next().ok());
    ASSERT_TRUE(right().next().ok());
    fence();
    EXPECT_TRUE(has_pattern(target.bytes().first(size), size));
    EXPECT_TRUE(has_pattern(target.bytes().subspan(bytes, size), size));
  }
}

// The receive is posted later, after the sender has overwritten the buffer that it sent inline.
TEST_F(VerbsTest, InlinePayloadSurvivesAReceiverThatIsNotReady) {
  if (!has(Trait::kReceiverNotReadyWaits)) GTEST_SKIP() << "property: a receiver that is not ready ends the connection";
  const auto source = left().buffer(32);
  const auto target = right().buffer(32);
  fill(source.bytes(), 1);
  ASSERT_TRUE(left().channel->post_send(source.at(0), {.id = 7, .flags = PostFlags::kInline}));
  std::ranges::fill(source.bytes(), kGuard);
  ASSERT_TRUE(right().channel->post_recv(target.at(0), {.id = 70}));
  ASSERT_TRUE(left().next().ok());
  ASSERT_TRUE(right().next().ok());
  EXPECT_TRUE(has_pattern(target.bytes(), 1));
}

TEST_F(VerbsTest, InlinePayloadNeedsNoRegistration) {
  std::vector<std::byte> plain(32);
  fill(plain, 4);
  const auto target = right().buffer(32);
  const BufferSlice unregistered{reinterpret_cast<std::uintptr_t>(plain.data()), 32, 0};
  ASSERT_TRUE(left().channel->post_write(unregistered, target.remote_region(), {.id = 1, .flags = PostFlags::kInline}));
  ASSERT_TRUE(left().next().ok());
  fence();
  EXPECT_TRUE(has_pattern(target.bytes(), 4));
}

TEST_F(VerbsTest, MemoryOfTheCallerCanBeUsed) {
  std::vector<std::byte> ours(10'000);
  std::vector<std::byte> theirs(10'000);
  const BufferOptions options{.block_bytes = 10'000, .remote_access = RemoteAccess::kRead | RemoteAccess::kWrite};
  const auto source = RDMABuffer::adopt(left().device, ours, options).value();
  const auto target = RDMABuffer::adopt(right().device, theirs, options).value();
  fill(ours, 1);
  ASSERT_TRUE(left().channel->post_write(source.at(0), target.remote_region(), {.id = 1}));
  ASSERT_TRUE(left().next().ok());
  fence();
  EXPECT_TRUE(has_pattern(theirs, 1));
  fill(theirs, 2);
  ASSERT_TRUE(left().channel->post_read(source.at(0), target.remote_region(), {.id = 2}));
  ASSERT_TRUE(left().next().ok());
  EXPECT_TRUE(has_pattern(ours, 2));
  fill(ours, 3);
  ASSERT_TRUE(right().channel->post_recv(target.at(0), {.id = 3}));
  ASSERT_TRUE(left().channel->post_send(source.at(0), {.id = 3}));
  ASSERT_TRUE(left().next().ok());
  ASSERT_TRUE(right().next().ok());
  EXPECT_TRUE(has_pattern(theirs, 3));
}

TEST_F(VerbsTest, UnsignaledRequestsHaveNoCompletion) {
  const auto source = left().buffer(4096);
  const auto target = right().buffer(4096);
  fill(source.bytes(), 1);
  for (std::uint32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(left().channel->post_write(source.at(0).slice_unchecked(i * 1000, 1000),
                                           target.remote_region().slice_unchecked(i * 1000),
                                           {.id = i, .flags = PostFlags::kUnsignaled}));
  }
  ASSERT_TRUE(left().channel->post_write(source.at(0).slice_unchecked(3000, 1096),
                                         target.remote_region().slice_unchecked(3000), {.id = 99}));
  const Completion completion = left().next();
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion.id, 99U);
  fence();
  EXPECT_TRUE(has_pattern(target.bytes(), 1));
  EXPECT_TRUE(left().quiet());
  EXPECT_EQ(left().channel->outstanding_sends(), 0);
}

TEST_F(VerbsTest, UnsignaledRequestsDoNotFillTheQueue) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  const std::uint64_t writes = rounds(10'000);
  std::uint64_t written = 0;
  set_word(source, writes);  // not changed: the WRITEs are in flight until the later READ is complete
  while (written < writes) {
    ASSERT_FALSE(deadline.passed()) << "stopped after " << written;
    const Outcome result = left().channel->post_write(source.at(0), target.remote_region(),
                                                      {.id = written, .flags = PostFlags::kUnsignaled});
    if (result) {
      ++written;
    } else {
      ASSERT_EQ(result, Errc::kSendQueueFull);
      ASSERT_TRUE(left().quiet());
      std::this_thread::yield();
    }
  }
  const auto last = left().buffer(8);
  while (left().channel->post_read(last.at(0), target.remote_region(), {.id = 1}) == Errc::kSendQueueFull) {
    ASSERT_FALSE(deadline.passed());
    ASSERT_TRUE(left().quiet());
  }
  ASSERT_TRUE(left().next().ok());
  EXPECT_EQ(word(last), writes);
}

TEST_F(VerbsTest, AChainMixesOperationsInOrder) {
  if (!has(Trait::kCarriesImmediateData)) GTEST_SKIP() << "property: no immediate data";
  const auto source = left().buffer(64);
  const auto target = right().buffer(64);
  const auto inbox = right().buffer(64);
  fill(source.bytes().first(32), 1);
  ASSERT_TRUE(right().channel->post_recv(inbox.at(0), {.id = 70}));
  ASSERT_TRUE(right().channel->post_recv(inbox.at(0), {.id = 71}));
  const BufferSlice out = source.at(0).first(32);
  const BufferSlice back = source.at(0).slice_unchecked(32, 32);
  const std::array<SendRequest, 4> requests{
      SendRequest{.operation = Operation::kWrite,
                  .local = out,
                  .remote = target.remote_region(),
                  .options = {.id = 1, .flags = PostFlags::kUnsignaled}},
      SendRequest{.operation = Operation::kRead, .local = back, .remote = target.remote_region(), .options = {.id = 2}},
      SendRequest{.operation = Operation::kSend,
                  .local = back,
                  .options = {.id = 3, .immediate = 5, .flags = PostFlags::kFence}},
      SendRequest{
          .operation = Operation::kWrite, .remote = target.remote_region(), .options = {.id = 4, .immediate = 6}}};
  const PostedChain posted = left().channel->post_chain(requests);
  ASSERT_TRUE(posted);
  EXPECT_EQ(posted.count, 4U);
  for (const std::uint64_t id : {2, 3, 4}) {
    const Completion completion = left().next();
    ASSERT_TRUE(completion.ok()) << completion.status().message();
    EXPECT_EQ(completion.id, id);
  }
  const Completion first = right().next();
  const Completion second = right().next();
  EXPECT_EQ(first.id, 70U);
  EXPECT_EQ(first.immediate, 5U);
  EXPECT_EQ(second.id, 71U);
  EXPECT_EQ(second.operation, Operation::kRecvWriteImm);
  EXPECT_EQ(second.immediate, 6U);
  EXPECT_TRUE(has_pattern(inbox.bytes().first(32), 1)) << "the READ saw the WRITE, the SEND saw the READ";
}

// A READ needs a round trip, the requests after it only one way.
TEST_F(VerbsTest, RequestsCompleteInTheOrderTheyWerePosted) {
  constexpr std::size_t kBytes = 64 << 10;
  const auto source = right().buffer(kBytes);
  const auto place = left().buffer(kBytes);
  const auto word = left().buffer(8);
  const auto elsewhere = right().buffer(8);  // without a fence, a WRITE may overtake a READ of the same place
  for (unsigned round = 0; round < 20; ++round) {
    fill(source.bytes(), round);
    ASSERT_TRUE(right().channel->post_recv(inbox(right()), {.id = 1}));
    ASSERT_TRUE(left().channel->post_read(place.at(0), source.remote_region(), {.id = 1}));
    ASSERT_TRUE(left().channel->post_send(word.at(0), {.id = 2}));
    ASSERT_TRUE(left().channel->post_write(word.at(0), elsewhere.remote_region(), {.id = 3}));
    ASSERT_EQ(left().next().id, 1U);
    EXPECT_TRUE(has_pattern(place.bytes(), round)) << "the READ is not complete";
    ASSERT_EQ(left().next().id, 2U);
    ASSERT_EQ(left().next().id, 3U);
    ASSERT_TRUE(right().next().ok());
  }
}

TEST_F(VerbsTest, ReceivesMayBeEmpty) {
  if (!has(Trait::kTakesEmptyReceives)) GTEST_SKIP() << "property: a receive needs a slice";
  ASSERT_TRUE(right().channel->post_recv({}, {.id = 70}));
  ASSERT_TRUE(left().channel->post_send({}, {.id = 7}));
  EXPECT_TRUE(left().next().ok());
  EXPECT_EQ(right().next().bytes, 0U);
}

TEST_F(VerbsTest, ReceivesCompleteInTheOrderTheyWerePosted) {
  const auto source = left().buffer(8);
  const auto inbox = right().buffer(8 * 100);
  for (std::uint32_t i = 0; i < 100; ++i) {
    ASSERT_TRUE(right().channel->post_recv(inbox.at(0).slice_unchecked(i * 8, 8), {.id = i}));
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    set_word(source, i);
    ASSERT_TRUE(left().channel->post_send(source.at(0), {.id = i}));
    ASSERT_TRUE(left().next().ok());
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Completion received = right().next();
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(received.id, i);
    std::uint64_t value = 0;
    std::memcpy(&value, inbox.data() + 8 * i, 8);
    EXPECT_EQ(value, i);
  }
}

/// One end of an exchange of numbered messages in both directions. A message is only sent if the peer has a receive for
/// it. The number of posted receives is twice the number of messages that may be outstanding. Each message that arrives
/// from the peer shows that the peer has posted receives again.
class Exchange {
 public:
  explicit Exchange(const ChannelEnd& end) : end_(end) {
    for (unsigned i = 0; i < kReceives; ++i) EXPECT_TRUE(end_.channel->post_recv(in(i), {.id = i}));
  }
  /// Sends and receives `messages`. Returns false at the first wrong one.
  [[nodiscard]] bool run(unsigned messages) {
    unsigned posted = 0;
    unsigned sent = 0;
    unsigned received = 0;
    while (sent < messages || received < messages) {
      for (; posted < messages && posted - std::min(sent, received) < kUnderWay; ++posted) {
        fill(out(posted).bytes(), posted);
        if (!end_.channel->post_send(out(posted), {.id = posted})) return false;
      }
      const Completion completion = end_.next();
      if (!completion.ok()) return false;
      if (completion.operation == Operation::kSend) {
        ++sent;
        continue;
      }
      if (!has_pattern(in(received).bytes(), received)) return false;
      if (!end_.channel->post_recv(in(received), {.id = received})) return false;
      ++received;
    }
    return true;
  }

 private:
  static constexpr std::uint32_t kBytes = 256;
  static constexpr unsigned kUnderWay = 8;
  static constexpr unsigned kReceives = 2 * kUnderWay;

  [[nodiscard]] BufferSlice out(unsigned i) const { return out_.at(0).slice_unchecked(i % kUnderWay * kBytes, kBytes); }
  [[nodiscard]] BufferSlice in(unsigned i) const { return in_.at(0).slice_unchecked(i % kReceives * kBytes, kBytes); }

  const ChannelEnd& end_;
  const RDMABuffer out_ = end_.buffer(kBytes * kUnderWay);
  const RDMABuffer in_ = end_.buffer(kBytes * kReceives);
};

TEST_F(VerbsTest, BothDirectionsAtOnce) {
  const unsigned messages = rounds(5000);
  Exchange here(left());
  Exchange there(right());
  bool left_ok = false;
  std::thread other([&] { left_ok = here.run(messages); });
  const bool right_ok = there.run(messages);
  other.join();
  EXPECT_TRUE(left_ok);
  EXPECT_TRUE(right_ok);
}

TEST_F(VerbsTest, TwoThreadsPostAndPollOneChannel) {
  const std::uint64_t writes = rounds(20'000);
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  std::uint64_t completed = 0;
  bool in_order = true;
  std::thread poller([&] {
    while (completed < writes) {
      const Completion completion = left().next();
      if (!completion.ok() || completion.id != completed) {
        in_order = false;
        return;
      }
      ++completed;
    }
  });
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  for (std::uint64_t id = 0; id < writes && !deadline.passed();) {
    const Outcome result = left().channel->post_write(source.at(0), target.remote_region(), {.id = id});
    if (result) {
      ++id;
    } else {
      std::this_thread::yield();
    }
    const int outstanding = left().channel->outstanding_sends();
    ASSERT_GE(outstanding, 0);
    ASSERT_LE(outstanding, left().channel->send_depth());
  }
  poller.join();
  EXPECT_TRUE(in_order);
  EXPECT_EQ(completed, writes);
}

TEST_F(VerbsTest, SlicesUpToTheConfiguredNumber) {
  const std::uint32_t most = std::min(16U, static_cast<std::uint32_t>(left().device->limits().max_sge));
  PairOptions options;
  options.left.max_send_slices = options.right.max_recv_slices = static_cast<int>(most);
  start(options);
  const auto source = left().buffer(most * 5);
  const auto target = right().buffer(most * 5);
  fill(source.bytes(), 3);
  std::vector<BufferSlice> gather;
  std::vector<BufferSlice> scatter;
  for (std::uint32_t i = 0; i < most; ++i) {
    gather.push_back(source.at(0).slice_unchecked(i * 5, 5));
    scatter.push_back(target.at(0).slice_unchecked(i * 5, 5));
  }
  ASSERT_TRUE(right().channel->post_recv(scatter, {.id = 1}));
  ASSERT_TRUE(left().channel->post_send(gather, {.id = 1}));
  ASSERT_TRUE(left().next().ok());
  ASSERT_TRUE(right().next().ok());
  EXPECT_TRUE(has_pattern(target.bytes(), 3));
  gather.push_back(source.at(0).first(1));
  EXPECT_EQ(left().channel->post_send(gather, {.id = 2}), Errc::kInvalidArgument) << "one more than configured";
}

}  // namespace
}  // namespace rdmacomm::contract
