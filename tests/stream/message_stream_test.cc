#include "rdmacomm/message_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "stream/raw_stream_peer.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::EndPointPair;
using rdmacomm::testing::expect_ok;
using rdmacomm::testing::kStreamChannel;
using rdmacomm::testing::pattern;
using rdmacomm::testing::RawStreamPeer;
using rdmacomm::testing::small_stream;
using rdmacomm::testing::soon;
using rdmacomm::testing::tiny;
using ::testing::HasSubstr;

constexpr std::size_t kLargest = 16384;  // largest block of the pools

HcaConfig config(PollingMode mode = PollingMode::kBusyPoll, const StreamOptions& options = small_stream()) {
  HcaConfig hca{.channels = {MessageStream::channel(options, kStreamChannel), {.name = kControlChannel}},
                .polling_mode = mode};
  hca.channels.front().adapter.rnr_retry = 0;
  return hca;
}

BufferPool make_pool(const std::shared_ptr<DeviceCore>& device, std::size_t bytes = 16 * kLargest,
                     RemoteAccess access = RemoteAccess::kRead) {
  auto pool = BufferPool::create(
      device, {.total_bytes = bytes, .smallest_block = 1024, .largest_block = kLargest, .remote_access = access});
  EXPECT_TRUE(pool.has_value()) << pool.status().message();
  return std::move(*pool);
}

struct MessagePair {
  explicit MessagePair(PollingMode mode = PollingMode::kBusyPoll, std::size_t pool_bytes = 16 * kLargest,
                       bool immediate = true)
      : ends(config(mode)) {
    const_cast<DeviceLimits&>(ends.device->limits()).immediate_data = immediate;
    start(pool_bytes, small_stream(), small_stream());
  }
  MessagePair(const StreamOptions& client_options, const StreamOptions& server_options)
      : ends(config(PollingMode::kBusyPoll, client_options), config(PollingMode::kBusyPoll, server_options)) {
    start(16 * kLargest, client_options, server_options);
  }
  void start(std::size_t pool_bytes, const StreamOptions& client_options, const StreamOptions& server_options) {
    client_pool = make_pool(ends.device, pool_bytes);
    server_pool = make_pool(ends.device, pool_bytes);
    auto opening = std::async(std::launch::async, [&] { return open(ends.server, server_pool, server_options); });
    client = open(ends.client, client_pool, client_options);
    server = opening.get();
  }
  static MessageStream open(const std::shared_ptr<EndPointCore>& endpoint, const BufferPool& pool,
                            const StreamOptions& options = small_stream()) {
    auto opened = MessageStream::open(endpoint, *endpoint->channel(kStreamChannel), pool, options, soon());
    EXPECT_TRUE(opened.has_value()) << opened.status().message();
    return opened ? std::move(*opened) : MessageStream();
  }

  EndPointPair ends;
  BufferPool client_pool;
  BufferPool server_pool;
  MessageStream client;
  MessageStream server;
};

/// Receives the next message as a whole. Returns an empty optional at the end, or after a failure, which fails the
/// test.
std::optional<std::vector<std::byte>> receive(MessageStream& from) {
  std::vector<std::byte> message;
  for (;;) {
    const auto part = from.receive(soon());
    EXPECT_TRUE(part.has_value()) << part.status().message();
    if (!part || !*part) return {};
    EXPECT_EQ(part->offset(), message.size());
    message.insert(message.end(), part->bytes().begin(), part->bytes().end());
    if (part->last()) return message;
  }
}

std::future<Status> sending(MessageStream& to, std::vector<std::size_t> sizes) {
  return std::async(std::launch::async, [&to, sizes = std::move(sizes)] {
    for (const std::size_t size : sizes) {
      if (Status sent = to.send(pattern(size, size), soon()); !sent) return sent;
    }
    return to.finish(soon());
  });
}

const std::vector<std::size_t> kSizes = {
    0, 1, 1023, 1024, 1025, 4096, 0, kLargest - 1, 3000, 10, kLargest, kLargest + 1, 1, 5 * kLargest + 7, 0, 100'000};

void expect_arrive(MessageStream& from, MessageStream& to, const std::vector<std::size_t>& sizes) {
  auto sent = sending(from, sizes);
  for (const std::size_t size : sizes) {
    const auto message = receive(to);
    ASSERT_TRUE(message.has_value());
    EXPECT_TRUE(*message == pattern(size, size)) << size << " bytes";
  }
  EXPECT_FALSE(receive(to).has_value());
  expect_ok(sent.get());
}

TEST(MessageStreamTest, MessagesOfEverySizeArriveAsTheyWereSent) {
  for (const PollingMode mode : {PollingMode::kBusyPoll, PollingMode::kCompletionChannel}) {
    MessagePair pair(mode);
    expect_arrive(pair.client, pair.server, kSizes);
    expect_arrive(pair.server, pair.client, kSizes);
    EXPECT_EQ(pair.client_pool.counts().leased_bytes, 0U);
    EXPECT_EQ(pair.server_pool.counts().leased_bytes, 0U);
  }
}

TEST(MessageStreamTest, MessagesArriveWithoutImmediateDataToo) {
  MessagePair pair(PollingMode::kBusyPoll, 16 * kLargest, false);
  expect_arrive(pair.client, pair.server, kSizes);
}

TEST(MessageStreamTest, ManyOfRandomSizesAreSentBothWays) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  MessagePair pair;
  std::vector<std::size_t> there;
  std::vector<std::size_t> back;
  for (int i = 0; i < 300; ++i) {
    there.push_back(random() % 4 == 0 ? random() % 40'000 : random() % 1500);
    back.push_back(random() % 4 == 0 ? random() % 40'000 : random() % 1500);
  }
  auto other = std::async(std::launch::async, [&] { expect_arrive(pair.server, pair.client, back); });
  expect_arrive(pair.client, pair.server, there);
  other.get();
}

TEST(MessageStreamTest, BothEndsMaySendLargeOnesBeforeTheyReceive) {
  MessagePair pair;
  auto other = std::async(std::launch::async, [&] {
    expect_ok(pair.server.send(pattern(6 * kLargest, 1), soon()));
    EXPECT_TRUE(receive(pair.server) == pattern(6 * kLargest, 2));
    expect_ok(pair.server.flush(soon()));
  });
  expect_ok(pair.client.send(pattern(6 * kLargest, 2), soon()));
  EXPECT_TRUE(receive(pair.client) == pattern(6 * kLargest, 1));
  expect_ok(pair.client.flush(soon()));  // calls must send the data for which the peer had no room
  other.get();
}

/// Messages larger than both pools together: the sender waits until the peer receives.
TEST(MessageStreamTest, MessagesMayBeLargerThanThePool) {
  MessagePair pair(PollingMode::kBusyPoll, 2 * kLargest);
  expect_arrive(pair.client, pair.server, {50 * kLargest, 3, 20 * kLargest + 1});
}

TEST(MessageStreamTest, ASendWaitsForThePeerUntilTheDeadline) {
  MessagePair pair(PollingMode::kBusyPoll, 2 * kLargest);
  EXPECT_EQ(pair.client.send(pattern(50 * kLargest), tiny()).code(), Errc::kTimeout);
  EXPECT_EQ(pair.client.status().code(), Errc::kAborted);  // a partly sent message cannot be revoked
  EXPECT_EQ(pair.client.send(pattern(1), soon()).code(), Errc::kAborted);
}

TEST(MessageStreamTest, LentMemoryAndLeasesAreSentWithoutACopy) {
  MessagePair pair;
  const auto room = pair.client.lend(soon());
  ASSERT_TRUE(room.has_value());
  EXPECT_EQ(room->size(), 1024U);
  std::ranges::copy(pattern(100), room->begin());
  expect_ok(pair.client.commit(100));
  ASSERT_TRUE(pair.client.lend(soon()).has_value());
  expect_ok(pair.client.commit(0));
  auto lease = pair.client_pool.take(500);
  ASSERT_TRUE(lease);
  std::ranges::copy(pattern(500, 3), lease->data());
  expect_ok(pair.client.send(*std::move(lease), soon()));
  EXPECT_EQ(receive(pair.server).value(), pattern(100));
  EXPECT_EQ(receive(pair.server).value().size(), 0U);
  EXPECT_EQ(receive(pair.server).value(), pattern(500, 3));
  auto finished = std::async(std::launch::async, [&] { return pair.client.finish(soon()); });
  EXPECT_FALSE(receive(pair.server).has_value());
  expect_ok(finished.get());
  EXPECT_EQ(pair.client_pool.counts().leased_bytes, 0U);
}

TEST(MessageStreamTest, CloseEndsBothDirectionsInOrder) {
  MessagePair pair;
  auto sent = sending(pair.client, {5000, 10});
  EXPECT_EQ(receive(pair.server).value().size(), 5000U);
  EXPECT_EQ(receive(pair.server).value().size(), 10U);
  auto closing = std::async(std::launch::async, [&] { return pair.server.close(soon()); });
  expect_ok(sent.get());
  expect_ok(pair.client.close(soon()));
  expect_ok(closing.get());
}

TEST(MessageStreamTest, APartKnowsWhereItEndsWhenItIsReleased) {
  MessagePair pair;
  auto sent = sending(pair.client, {10, 5000});
  for (const std::size_t size : {10U, 5000U}) {
    MessagePart part = std::move(*pair.server.receive(soon()));
    part.release();
    EXPECT_TRUE(part.last());
    EXPECT_EQ(part.message_bytes(), size);
    EXPECT_TRUE(part.bytes().empty());
    const MessagePart moved = std::move(part);
    EXPECT_TRUE(moved.last());
    EXPECT_FALSE(part);  // NOLINT(bugprone-use-after-move): what is left is the end
  }
  EXPECT_FALSE(receive(pair.server).has_value());
  expect_ok(sent.get());
}

TEST(MessageStreamTest, APartMayOutliveItsStreamAndItsPool) {
  MessagePart large;
  MessagePart small;
  {
    MessagePair pair;
    auto sent = sending(pair.client, {5000, 10});
    large = std::move(*pair.server.receive(soon()));
    small = std::move(*pair.server.receive(soon()));
    pair.server.abort("enough");
    EXPECT_EQ(sent.get().code(), Errc::kAborted);
  }
  EXPECT_TRUE(std::ranges::equal(large.bytes(), pattern(5000, 5000)));
  EXPECT_TRUE(std::ranges::equal(small.bytes(), pattern(10, 10)));
}

TEST(MessageStreamTest, APeerThatIsLostEndsAllWaits) {
  MessagePair pair;
  auto sent = sending(pair.client, std::vector<std::size_t>(100, 30'000));
  pair.ends.server->connector().shutdown();
  EndPointPair::watch(*pair.ends.client);
  EXPECT_EQ(sent.get().code(), Errc::kPeerLost);
  EXPECT_EQ(pair.client.receive(soon()).code(), Errc::kPeerLost);
}

TEST(MessageStreamTest, APoolThatPeersCannotReadIsRefused) {
  EndPointPair ends(config());
  const auto open = [&](const BufferPool& pool) {
    return MessageStream::open(ends.client, *ends.client->channel(kStreamChannel), pool, small_stream(), soon());
  };
  EXPECT_EQ(open({}).code(), Errc::kInvalidArgument);
  EXPECT_EQ(open(make_pool(ends.device, kLargest, RemoteAccess::kNone)).code(), Errc::kInvalidArgument);
  EXPECT_EQ(open(make_pool(rdmacomm::testing::open_soft_device())).code(), Errc::kInvalidArgument);
}

/// An end that only reads posts fewer receives, and an end that only writes small messages does too. A receive is never
/// missing (rnr_retry is 0).
TEST(MessageStreamTest, OneDirection) {
  StreamOptions reader = small_stream();
  reader.write_blocks = reader.borrowed_blocks = 0;
  StreamOptions writer = small_stream();
  writer.read_blocks = 0;
  EXPECT_EQ(reader.recv_depth(), reader.read_blocks + 3);
  MessagePair pair(writer, reader);
  EXPECT_EQ(pair.server.send(pattern(10), soon()).code(), Errc::kWrongState);
  EXPECT_EQ(pair.server.send(pattern(5000), soon()).code(), Errc::kWrongState);
  constexpr int kMessages = 300;
  const auto size_of = [](int i) -> std::size_t { return i % 3 == 0 ? 1025 + 97 * static_cast<std::size_t>(i) : 1024; };
  auto received = std::async(std::launch::async, [&] {
    std::vector<std::byte> message;
    for (int i = 0; i < kMessages;) {
      const auto part = pair.server.receive(soon());
      if (!part || !*part) return i;
      message.insert(message.end(), part->bytes().begin(), part->bytes().end());
      if (!part->last()) continue;
      if (message != pattern(size_of(i), static_cast<std::size_t>(i))) return i;
      message.clear();
      ++i;
    }
    return kMessages;
  });
  for (int i = 0; i < kMessages; ++i) {
    expect_ok(pair.client.send(pattern(size_of(i), static_cast<std::size_t>(i)), soon()));
  }
  expect_ok(pair.client.flush(soon()));
  EXPECT_EQ(received.get(), kMessages);
  auto ended = std::async(std::launch::async, [&] { return pair.client.finish(soon()); });
  EXPECT_FALSE(pair.server.receive(soon()).value());
  expect_ok(ended.get());
}

// Violations of the rules
// ----------------------------------------------------------------------------------------------

class BadMessagesTest : public ::testing::Test {
 protected:
  BadMessagesTest() : ends_(config()) {
    auto opening = std::async(std::launch::async, [this] { return MessagePair::open(ends_.client, pool_); });
    peer_ = std::make_unique<RawStreamPeer>(ends_.server, kStreamChannel);
    peer_->say_hello({.mode = StreamMode::kMessages,
                      .immediate = true,
                      .block_bytes = 4096,
                      .read_blocks = 4,
                      .part_bytes = kLargest});
    stream_ = opening.get();
  }
  Completion announce(std::uint64_t length, std::uint64_t message, std::uint64_t offset, std::uint32_t rkey_off = 0) {
    RemoteRegion region = peer_->memory().remote_region();
    region.length = length;
    region.rkey += rkey_off;
    const Announcement said{.region = region, .message_bytes = message, .offset = offset};
    return peer_->send({.kind = SegmentKind::kAnnounce}, said.encode());
  }
  Status received() {
    for (;;) {
      const auto part = stream_.receive(soon());
      if (!part) return part.error();
      if (!*part) return {};
    }
  }
  void expect_refused(const char* why) {
    const Status refused = received();
    EXPECT_EQ(refused.code(), Errc::kBadMessage);
    EXPECT_THAT(refused.message(), HasSubstr(why));
    EXPECT_THAT(peer_->hear_abort(), HasSubstr(why));
  }

  EndPointPair ends_;
  BufferPool pool_ = make_pool(ends_.device);
  std::unique_ptr<RawStreamPeer> peer_;
  MessageStream stream_;
};

TEST_F(BadMessagesTest, APartThatIsTooLarge) {
  (void)announce(kLargest + 1, kLargest + 1, 0);
  expect_refused("which is more than the local pool allows");
}

TEST_F(BadMessagesTest, APartThatDoesNotFollow) {
  EXPECT_TRUE(announce(100, 300, 0).ok());
  (void)announce(100, 300, 200);
  expect_refused("does not follow");
}

TEST_F(BadMessagesTest, APartWithoutBeginning) {
  (void)announce(100, 300, 100);
  expect_refused("does not follow");
}

TEST_F(BadMessagesTest, AMessageWithinAnother) {
  EXPECT_TRUE(announce(100, 300, 0).ok());
  (void)peer_->send_data(pattern(10));
  expect_refused("a message inside another message");
}

TEST_F(BadMessagesTest, AnEndWithinAMessage) {
  EXPECT_TRUE(announce(100, 300, 0).ok());
  WireWriter total;
  total.put(std::uint64_t{100});
  (void)peer_->send({.kind = SegmentKind::kEnd}, total.bytes());
  expect_refused("an END after 100 bytes");
}

TEST_F(BadMessagesTest, APartLeavesItsMessage) {
  (void)announce(100, 99, 0);
  expect_refused("announces 100 bytes at offset 0 of a message of 99");
}

TEST_F(BadMessagesTest, APartThatIsNotRegistered) {
  EXPECT_TRUE(announce(100, 100, 0, 77).ok());
  EXPECT_EQ(received().code(), Errc::kRemoteAccess);
}

TEST_F(BadMessagesTest, TakesAPartThatWasNotAnnounced) {
  (void)peer_->send({.kind = SegmentKind::kTaken, .value = 1});
  expect_refused("acknowledged 1 parts, but 0 parts");
}

}  // namespace
}  // namespace rdmacomm
