// Every operation between two connected channels, byte by byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "support/connected_pair.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::ConnectedPairTest;

constexpr std::byte kGuard{0xa5};
constexpr std::size_t kGuardBytes = 64;

// A pattern without a short period, another one for each seed.
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

// Sizes around what devices treat differently: nothing, words, inline and eager limits, pages, beyond 64 KiB.
class VerbsBySizeTest : public ConnectedPairTest, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  void SetUp() override {
    ConnectedPairTest::SetUp();
    source_ = left().buffer(size() + 2 * kGuardBytes);
    target_ = right().buffer(size() + 2 * kGuardBytes);
    std::ranges::fill(target_->bytes(), kGuard);
    std::ranges::fill(source_->bytes(), kGuard);
  }
  static std::uint32_t size() { return GetParam(); }
  // The payload's place in the middle of a buffer, guarded at both ends.
  static std::span<std::byte> payload(const RDMABuffer& buffer) { return buffer.bytes().subspan(kGuardBytes, size()); }
  static BufferSlice slice(const RDMABuffer& buffer) { return buffer.slice(kGuardBytes, size()).value(); }
  static RemoteRegion region(const RDMABuffer& buffer) {
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

  std::unique_ptr<RDMABuffer> source_;
  std::unique_ptr<RDMABuffer> target_;
};

TEST_P(VerbsBySizeTest, Send) {
  fill(payload(*source_), 1);
  ASSERT_FALSE(right().channel->post_recv(slice(*target_), 70));
  ASSERT_FALSE(left().channel->post_send(slice(*source_), 7));
  expect_done(7, Operation::kSend);
  const Completion received = right().next();
  ASSERT_TRUE(received.ok()) << received.status().message();
  EXPECT_EQ(received.id, 70U);
  EXPECT_EQ(received.operation, Operation::kRecv);
  EXPECT_EQ(received.bytes, size());
  EXPECT_FALSE(received.has_immediate);
  EXPECT_TRUE(has_pattern(payload(*target_), 1));
  expect_guards(*target_);
}

TEST_P(VerbsBySizeTest, SendWithImmediate) {
  fill(payload(*source_), 2);
  ASSERT_FALSE(right().channel->post_recv(slice(*target_), 70));
  ASSERT_FALSE(left().channel->post_send_imm(slice(*source_), 0xdeadbeef, 7));
  expect_done(7, Operation::kSend);
  const Completion received = right().next();
  ASSERT_TRUE(received.ok()) << received.status().message();
  EXPECT_TRUE(received.has_immediate);
  EXPECT_EQ(received.immediate, 0xdeadbeefU);
  EXPECT_EQ(received.bytes, size());
  EXPECT_TRUE(has_pattern(payload(*target_), 2));
  expect_guards(*target_);
}

TEST_P(VerbsBySizeTest, Write) {
  fill(payload(*source_), 3);
  ASSERT_FALSE(left().channel->post_write(slice(*source_), region(*target_), 7));
  expect_done(7, Operation::kWrite);
  EXPECT_TRUE(has_pattern(payload(*target_), 3));
  expect_guards(*target_);
  EXPECT_TRUE(right().quiet());
}

TEST_P(VerbsBySizeTest, WriteWithImmediate) {
  fill(payload(*source_), 4);
  ASSERT_FALSE(right().channel->post_recv({}, 70));
  ASSERT_FALSE(left().channel->post_write_imm(slice(*source_), region(*target_), 0x01020304, 7));
  expect_done(7, Operation::kWriteImm);
  const Completion received = right().next();
  ASSERT_TRUE(received.ok()) << received.status().message();
  EXPECT_EQ(received.id, 70U);
  EXPECT_EQ(received.operation, Operation::kRecvWriteImm);
  EXPECT_EQ(received.bytes, size());
  EXPECT_EQ(received.immediate, 0x01020304U);
  EXPECT_TRUE(has_pattern(payload(*target_), 4));
  expect_guards(*target_);
}

TEST_P(VerbsBySizeTest, Read) {
  fill(payload(*target_), 5);
  ASSERT_FALSE(left().channel->post_read(slice(*source_), region(*target_), 7));
  expect_done(7, Operation::kRead);
  EXPECT_TRUE(has_pattern(payload(*source_), 5));
  expect_guards(*source_);
  EXPECT_TRUE(right().quiet());
}

// The same payload in slices of unequal length, on both sides, with an empty one among them.
TEST_P(VerbsBySizeTest, SlicesScatterAndGather) {
  const std::uint32_t first = size() / 3;
  const std::uint32_t second = size() - first;
  const BufferSlice from = slice(*source_);
  const BufferSlice to = slice(*target_);
  const std::array gather{from.first(first), from.first(0), from.part(first, second)};
  const std::array scatter{to.first(second), to.part(second, first)};
  fill(payload(*source_), 6);

  ASSERT_FALSE(right().channel->post_recv(scatter, 70));
  ASSERT_FALSE(left().channel->post_send(gather, 7));
  expect_done(7, Operation::kSend);
  EXPECT_EQ(right().next().bytes, size());
  EXPECT_TRUE(has_pattern(payload(*target_), 6));

  fill(payload(*source_), 8);
  ASSERT_FALSE(left().channel->post_write(gather, region(*target_), 8));
  expect_done(8, Operation::kWrite);
  EXPECT_TRUE(has_pattern(payload(*target_), 8));

  fill(payload(*target_), 9);
  ASSERT_FALSE(left().channel->post_read(gather, region(*target_), 9));
  expect_done(9, Operation::kRead);
  EXPECT_TRUE(has_pattern(payload(*source_), 9));
  expect_guards(*source_);
  expect_guards(*target_);
}

INSTANTIATE_TEST_SUITE_P(Sizes, VerbsBySizeTest,
                         ::testing::Values(0, 1, 7, 8, 9, 47, 48, 49, 64, 4096, 65'537, 1 << 20));

class VerbsTest : public ConnectedPairTest {
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

TEST_F(VerbsTest, FetchAddReturnsTheOldValueAndAdds) {
  const auto result = left().buffer(8);
  const auto counter = right().buffer(8);
  set_word(*counter, 0xffffffffffffffff);
  ASSERT_FALSE(left().channel->fetch_add(result->at(0), counter->remote_region(), 3, 7));
  const Completion completion = left().next();
  ASSERT_TRUE(completion.ok()) << completion.status().message();
  EXPECT_EQ(completion.operation, Operation::kFetchAdd);
  EXPECT_EQ(completion.bytes, 8U);
  EXPECT_EQ(word(*result), 0xffffffffffffffff);
  EXPECT_EQ(word(*counter), 2U);
}

TEST_F(VerbsTest, CompareSwapReplacesOnlyWhatItExpects) {
  const auto result = left().buffer(8);
  const auto target = right().buffer(8);
  set_word(*target, 5);
  ASSERT_FALSE(left().channel->compare_swap(result->at(0), target->remote_region(), 4, 9, 1));
  ASSERT_TRUE(left().next().ok());
  EXPECT_EQ(word(*result), 5U);
  EXPECT_EQ(word(*target), 5U);
  ASSERT_FALSE(left().channel->compare_swap(result->at(0), target->remote_region(), 5, 9, 2));
  const Completion completion = left().next();
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion.operation, Operation::kCompareSwap);
  EXPECT_EQ(word(*result), 5U);
  EXPECT_EQ(word(*target), 9U);
}

// Both ends add to one counter at the same time, one of them in its own memory through its own channel.
TEST_F(VerbsTest, AtomicsOfBothEndsLoseNothing) {
  constexpr int kAdds = 2000;
  const auto counter = right().buffer(8);
  const auto own_counter = left().buffer(8);
  const auto run = [](rdmacomm::testing::ChannelEnd& end, const RemoteRegion& region) {
    const auto result = end.buffer(8);
    for (int i = 0; i < kAdds; ++i) {
      if (end.channel->fetch_add(result->at(0), region, 1, 1)) return false;
      if (!end.next().ok()) return false;
    }
    return true;
  };
  bool left_ok = false;
  std::thread adder([&] { left_ok = run(left(), counter->remote_region()); });
  const bool right_ok = run(right(), own_counter->remote_region());
  adder.join();
  EXPECT_TRUE(left_ok && right_ok);
  EXPECT_EQ(word(*counter), static_cast<std::uint64_t>(kAdds));
  EXPECT_EQ(word(*own_counter), static_cast<std::uint64_t>(kAdds));
}

TEST_F(VerbsTest, InlinePayloadMayBeOverwrittenAtOnce) {
  const std::uint32_t bytes = left().channel->max_inline_bytes();
  const auto source = left().buffer(bytes);
  const auto target = right().buffer(bytes * 2);
  for (std::uint32_t size = 0; size <= bytes; ++size) {
    fill(source->bytes(), size);
    ASSERT_FALSE(right().channel->post_recv(target->slice(0, bytes).value(), 70));
    ASSERT_FALSE(left().channel->post_send(source->at(0).first(size), 7, PostFlags::kInline));
    ASSERT_FALSE(left().channel->post_write(source->at(0).first(size), target->remote_region().from(bytes), 8,
                                            PostFlags::kInline));
    std::ranges::fill(source->bytes(), kGuard);
    ASSERT_TRUE(left().next().ok());
    ASSERT_TRUE(left().next().ok());
    ASSERT_TRUE(right().next().ok());
    EXPECT_TRUE(has_pattern(target->bytes().first(size), size));
    EXPECT_TRUE(has_pattern(target->bytes().subspan(bytes, size), size));
  }
}

// The receive comes later: by then the caller has overwritten what it sent inline.
TEST_F(VerbsTest, InlinePayloadSurvivesAReceiverThatIsNotReady) {
  const auto source = left().buffer(32);
  const auto target = right().buffer(32);
  fill(source->bytes(), 1);
  ASSERT_FALSE(left().channel->post_send(source->at(0), 7, PostFlags::kInline));
  std::ranges::fill(source->bytes(), kGuard);
  ASSERT_FALSE(right().channel->post_recv(target->at(0), 70));
  ASSERT_TRUE(left().next().ok());
  ASSERT_TRUE(right().next().ok());
  EXPECT_TRUE(has_pattern(target->bytes(), 1));
}

TEST_F(VerbsTest, InlinePayloadNeedsNoRegistration) {
  std::vector<std::byte> plain(32);
  fill(plain, 4);
  const auto target = right().buffer(32);
  const BufferSlice unregistered{{reinterpret_cast<std::uintptr_t>(plain.data()), 32, 0}};
  ASSERT_FALSE(left().channel->post_write(unregistered, target->remote_region(), 1, PostFlags::kInline));
  ASSERT_TRUE(left().next().ok());
  EXPECT_TRUE(has_pattern(target->bytes(), 4));
}

TEST_F(VerbsTest, MemoryOfTheCallersWorksAsWell) {
  std::vector<std::byte> ours(10'000);
  std::vector<std::byte> theirs(10'000);
  const BufferOptions options{.block_bytes = 10'000, .remote_access = RemoteAccess::kRead | RemoteAccess::kWrite};
  const auto source = RDMABuffer::adopt(*left().device, ours, options).value();
  const auto target = RDMABuffer::adopt(*right().device, theirs, options).value();
  fill(ours, 1);
  ASSERT_FALSE(left().channel->post_write(source->at(0), target->remote_region(), 1));
  ASSERT_TRUE(left().next().ok());
  EXPECT_TRUE(has_pattern(theirs, 1));
  fill(theirs, 2);
  ASSERT_FALSE(left().channel->post_read(source->at(0), target->remote_region(), 2));
  ASSERT_TRUE(left().next().ok());
  EXPECT_TRUE(has_pattern(ours, 2));
  fill(ours, 3);
  ASSERT_FALSE(right().channel->post_recv(target->at(0), 3));
  ASSERT_FALSE(left().channel->post_send(source->at(0), 3));
  ASSERT_TRUE(left().next().ok());
  ASSERT_TRUE(right().next().ok());
  EXPECT_TRUE(has_pattern(theirs, 3));
}

TEST_F(VerbsTest, UnsignaledRequestsCompleteWithoutAWord) {
  const auto source = left().buffer(4096);
  const auto target = right().buffer(4096);
  fill(source->bytes(), 1);
  for (std::uint32_t i = 0; i < 3; ++i) {
    ASSERT_FALSE(left().channel->post_write(source->at(0).part(i * 1000, 1000), target->remote_region().from(i * 1000),
                                            i, PostFlags::kUnsignaled));
  }
  ASSERT_FALSE(left().channel->post_write(source->at(0).part(3000, 1096), target->remote_region().from(3000), 99));
  const Completion completion = left().next();
  ASSERT_TRUE(completion.ok());
  EXPECT_EQ(completion.id, 99U);
  EXPECT_TRUE(has_pattern(target->bytes(), 1));
  EXPECT_TRUE(left().quiet());
  EXPECT_EQ(left().channel->outstanding_sends(), 0);
}

TEST_F(VerbsTest, UnsignaledRequestsGoOnForEver) {
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  std::uint64_t written = 0;
  while (written < 10'000) {
    ASSERT_FALSE(deadline.passed()) << "stopped after " << written;
    set_word(*source, written + 1);
    const std::error_code result =
        left().channel->post_write(source->at(0), target->remote_region(), written, PostFlags::kUnsignaled);
    if (!result) {
      ++written;
    } else {
      ASSERT_EQ(result, Errc::kSendQueueFull);
      ASSERT_TRUE(left().quiet());
    }
  }
  EXPECT_EQ(word(*target), written);
}

TEST_F(VerbsTest, AChainMixesOperationsInOrder) {
  const auto source = left().buffer(64);
  const auto target = right().buffer(64);
  const auto inbox = right().buffer(64);
  fill(source->bytes().first(32), 1);
  ASSERT_FALSE(right().channel->post_recv(inbox->at(0), 70));
  ASSERT_FALSE(right().channel->post_recv(inbox->at(0), 71));
  const BufferSlice out = source->at(0).first(32);
  const BufferSlice back = source->at(0).part(32, 32);
  const std::array<SendRequest, 4> requests{
      SendRequest{.operation = Operation::kWrite,
                  .local = {&out, 1},
                  .remote = target->remote_region(),
                  .id = 1,
                  .flags = PostFlags::kUnsignaled},
      SendRequest{.operation = Operation::kRead, .local = {&back, 1}, .remote = target->remote_region(), .id = 2},
      SendRequest{.operation = Operation::kSend,
                  .local = {&back, 1},
                  .id = 3,
                  .has_immediate = true,
                  .immediate = 5,
                  .flags = PostFlags::kFence},
      SendRequest{.operation = Operation::kWriteImm, .remote = target->remote_region(), .id = 4, .immediate = 6}};
  std::size_t posted = 0;
  ASSERT_FALSE(left().channel->post_chain(requests, posted));
  EXPECT_EQ(posted, 4U);
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
  EXPECT_TRUE(has_pattern(inbox->bytes().first(32), 1)) << "the READ saw the WRITE, the SEND saw the READ";
}

TEST_F(VerbsTest, ReceivesCompleteInTheOrderTheyWerePosted) {
  const auto source = left().buffer(8);
  const auto inbox = right().buffer(8 * 100);
  for (std::uint32_t i = 0; i < 100; ++i) {
    ASSERT_FALSE(right().channel->post_recv(inbox->at(0).part(i * 8, 8), i));
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    set_word(*source, i);
    ASSERT_FALSE(left().channel->post_send(source->at(0), i));
    ASSERT_TRUE(left().next().ok());
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    const Completion received = right().next();
    ASSERT_TRUE(received.ok());
    EXPECT_EQ(received.id, i);
    std::uint64_t value = 0;
    std::memcpy(&value, inbox->data() + 8 * i, 8);
    EXPECT_EQ(value, i);
  }
}

// Sends and receives `messages` numbered payloads at the same time; false on the first that is wrong.
bool exchange(const rdmacomm::testing::ChannelEnd& end, unsigned messages) {
  constexpr std::uint32_t kBytes = 256;
  constexpr std::uint32_t kBlocks = 8;
  const auto out = end.buffer(kBytes * kBlocks);
  const auto in = end.buffer(kBytes * kBlocks);
  const auto block = [](const RDMABuffer& buffer, unsigned i) {
    return buffer.at(0).part(i % kBlocks * kBytes, kBytes);
  };
  unsigned posted = 0;
  unsigned sent = 0;
  unsigned received = 0;
  for (unsigned i = 0; i < kBlocks; ++i) {
    if (end.channel->post_recv(block(*in, i), i)) return false;
  }
  while (sent < messages || received < messages) {
    for (; posted < messages && posted - sent < kBlocks; ++posted) {
      fill(block(*out, posted).bytes(), posted);
      if (end.channel->post_send(block(*out, posted), posted)) return false;
    }
    const Completion completion = end.next();
    if (!completion.ok()) return false;
    if (completion.operation == Operation::kSend) {
      ++sent;
      continue;
    }
    if (!has_pattern(block(*in, received).bytes(), received)) return false;
    if (end.channel->post_recv(block(*in, received), received)) return false;
    ++received;
  }
  return true;
}

TEST_F(VerbsTest, BothDirectionsAtOnce) {
  constexpr unsigned kMessages = 5000;
  bool left_ok = false;
  std::thread other([&] { left_ok = exchange(left(), kMessages); });
  const bool right_ok = exchange(right(), kMessages);
  other.join();
  EXPECT_TRUE(left_ok);
  EXPECT_TRUE(right_ok);
}

TEST_F(VerbsTest, TwoThreadsPostAndPollOneChannel) {
  constexpr std::uint64_t kWrites = 20'000;
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  std::uint64_t completed = 0;
  bool in_order = true;
  std::thread poller([&] {
    while (completed < kWrites) {
      const Completion completion = left().next();
      if (!completion.ok() || completion.id != completed) {
        in_order = false;
        return;
      }
      ++completed;
    }
  });
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  for (std::uint64_t id = 0; id < kWrites && !deadline.passed();) {
    const std::error_code result = left().channel->post_write(source->at(0), target->remote_region(), id);
    if (!result) {
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
  EXPECT_EQ(completed, kWrites);
}

TEST_F(VerbsTest, SlicesUpToTheConfiguredNumber) {
  rdmacomm::testing::PairOptions options;
  options.left.max_send_slices = options.right.max_recv_slices = 16;
  start(options);
  const auto source = left().buffer(16 * 5);
  const auto target = right().buffer(16 * 5);
  fill(source->bytes(), 3);
  std::vector<BufferSlice> gather;
  std::vector<BufferSlice> scatter;
  for (std::uint32_t i = 0; i < 16; ++i) {
    gather.push_back(source->at(0).part(i * 5, 5));
    scatter.push_back(target->at(0).part(i * 5, 5));
  }
  ASSERT_FALSE(right().channel->post_recv(scatter, 1));
  ASSERT_FALSE(left().channel->post_send(gather, 1));
  ASSERT_TRUE(left().next().ok());
  ASSERT_TRUE(right().next().ok());
  EXPECT_TRUE(has_pattern(target->bytes(), 3));
}

}  // namespace
}  // namespace rdmacomm
