#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <set>
#include <thread>

#include "rdmacomm/stream.h"
#include "stream/stream_pair.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::config_for;
using rdmacomm::testing::EndPointPair;
using rdmacomm::testing::expect_ok;
using rdmacomm::testing::kStreamChannel;
using rdmacomm::testing::pattern;
using rdmacomm::testing::read_all;
using rdmacomm::testing::small_stream;
using rdmacomm::testing::soon;
using rdmacomm::testing::StreamPair;
using rdmacomm::testing::tiny;
using ::testing::HasSubstr;

/// Writes all data and finishes, on a thread of its own.
std::future<Status> writing(RDMAStream& to, std::vector<std::byte> data) {
  return std::async(std::launch::async, [&to, data = std::move(data)] {
    const Status written = to.write(data, soon());
    return written ? to.finish(soon()) : written;
  });
}

void expect_arrives(RDMAStream& from, RDMAStream& to, std::size_t bytes) {
  auto written = writing(from, pattern(bytes));
  EXPECT_TRUE(read_all(to) == pattern(bytes)) << bytes << " bytes";
  expect_ok(written.get());
}

// Bytes ---------------------------------------------------------------------------------------------------------------

TEST(RDMAStreamTest, AnyNumberOfBytesArrivesAndThenTheEnd) {
  for (const std::size_t bytes : {0, 1, 1023, 1024, 1025, 4095, 4096, 4097, 8192, 100'000}) {
    StreamPair pair;
    expect_arrives(pair.client, pair.server, static_cast<std::size_t>(bytes));
    StreamPair other(small_stream(), rdmacomm::testing::WithoutImmediateData());
    expect_arrives(other.client, other.server, static_cast<std::size_t>(bytes));
  }
}

TEST(RDMAStreamTest, WithoutImmediateDataCreditsAndBlocksAreTheSame) {
  StreamPair pair(small_stream(), rdmacomm::testing::WithoutImmediateData());
  auto back = writing(pair.server, pattern(70'000, 5));
  auto at_client = std::async(std::launch::async, [&] { return read_all(pair.client); });
  expect_arrives(pair.client, pair.server, 100'000);
  EXPECT_TRUE(at_client.get() == pattern(70'000, 5));
  expect_ok(back.get());
  EXPECT_GT(pair.server.counts().credits_sent + pair.client.counts().credits_sent, 0U);
}

TEST(RDMAStreamTest, BothDirectionsAreIndependent) {
  StreamPair pair;
  auto there = writing(pair.client, pattern(50'000));
  auto back = writing(pair.server, pattern(70'000, 5));
  auto at_client = std::async(std::launch::async, [&] { return read_all(pair.client); });
  EXPECT_TRUE(read_all(pair.server) == pattern(50'000));
  EXPECT_TRUE(at_client.get() == pattern(70'000, 5));
  expect_ok(there.get());
  expect_ok(back.get());
}

TEST(RDMAStreamTest, OneDirectionContinuesWhenTheOtherHasEnded) {
  StreamPair pair;
  expect_arrives(pair.client, pair.server, 3000);
  expect_arrives(pair.server, pair.client, 3000);
}

TEST(RDMAStreamTest, TheEndIsReportedAgain) {
  StreamPair pair;
  expect_arrives(pair.client, pair.server, 10);
  std::array<std::byte, 1> more;
  EXPECT_EQ(pair.server.read(more, tiny()).value(), 0U);
  EXPECT_FALSE(pair.server.next(tiny()).value());
  pair.client = {};
  EXPECT_EQ(pair.server.read(more, tiny()).value(), 0U);
}

/// Both peers use random lengths, and fill the lent blocks only in part.
TEST(RDMAStreamTest, RandomPiecesArriveInOrder) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  for (const PollingMode mode : {PollingMode::kBusyPoll, PollingMode::kCompletionChannel}) {
    StreamPair pair(small_stream(), mode);
    constexpr std::size_t kAll = 400'000;
    auto written = std::async(std::launch::async, [&] {
      std::mt19937 random(seed);
      for (std::size_t done = 0; done < kAll;) {
        const auto room = pair.client.lend(soon());
        if (!room) return room.status();
        const std::size_t count = std::min({room->size(), kAll - done, std::size_t{random() % 1500}});
        std::ranges::copy(pattern(count, done), room->begin());
        if (Status committed = pair.client.commit(count); !committed) return committed;
        done += count;
        if (random() % 8 != 0) continue;
        if (Status flushed = pair.client.flush(soon()); !flushed) return flushed;
      }
      return pair.client.finish(soon());
    });
    std::mt19937 random(seed + 1);
    std::vector<std::byte> all;
    std::vector<std::byte> some;
    for (std::size_t count = 1; count > 0;) {
      some.resize(1 + random() % 3000);
      const auto got = pair.server.read(some, soon());
      ASSERT_TRUE(got.has_value()) << got.status().message();
      count = *got;
      all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
    }
    EXPECT_TRUE(all == pattern(kAll));
    expect_ok(written.get());
  }
}

TEST(RDMAStreamTest, EndsMayHaveDifferentOptions) {
  const StreamOptions large{.block_bytes = 5000, .write_blocks = 7, .read_blocks = 1, .borrowed_blocks = 0};
  StreamPair pair(large, small_stream());
  EXPECT_EQ(pair.client.block_bytes(), 1024U);
  EXPECT_EQ(pair.server.block_bytes(), 1024U);
  expect_arrives(pair.client, pair.server, 30'000);
  expect_arrives(pair.server, pair.client, 30'000);
}

// Lending -------------------------------------------------------------------------------------------------------------

TEST(RDMAStreamTest, SmallWritesAreGatheredIntoBlocks) {
  StreamPair pair;
  for (int i = 0; i < 100; ++i) expect_ok(pair.client.write(pattern(10, static_cast<std::size_t>(i) * 10), soon()));
  EXPECT_EQ(pair.client.counts().blocks_written, 0U);
  EXPECT_EQ(pair.server.next(tiny()).code(), Errc::kTimeout);
  expect_ok(pair.client.flush(soon()));
  EXPECT_EQ(pair.client.counts().blocks_written, 1U);
  EXPECT_EQ(pair.server.next(soon()).value().size(), 1000U);
}

TEST(RDMAStreamTest, LentMemoryIsSentWithoutACopy) {
  StreamPair pair;
  const auto first = pair.client.lend(soon());
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->size(), 1024U);
  EXPECT_EQ(pair.client.lend(soon()).value().data(), first->data());
  expect_ok(pair.client.commit(1000));
  const auto rest = pair.client.lend(soon());
  EXPECT_EQ(rest.value().data(), first->data() + 1000);
  EXPECT_EQ(rest->size(), 24U);
  expect_ok(pair.client.commit(24));
  EXPECT_NE(pair.client.lend(soon()).value().data(), first->data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pair.server.next(soon()).value().bytes().data()) % 1024, 0U);
}

TEST(RDMAStreamTest, CommittingMoreThanWasLentIsABug) {
  StreamPair pair;
  ASSERT_TRUE(pair.client.lend(soon()).has_value());
  EXPECT_DEATH((void)pair.client.commit(1025), "more bytes are committed");
}

TEST(RDMAStreamTest, UsingAnEmptyStreamNamesIt) {
  EXPECT_DEATH((void)RDMAStream().counts(), "an empty stream was used");
}

TEST(RDMAStreamTest, CommittingWithoutALoanIsABug) {
  StreamPair pair;
  expect_ok(pair.client.commit(0));
  EXPECT_DEATH((void)pair.client.commit(1), "more bytes are committed");
}

void send_block(RDMAStream& from, RDMAStream& to) {
  expect_ok(from.write(pattern(1), soon()));
  expect_ok(from.flush(soon()));
  EXPECT_TRUE(to.next(soon()).value());
}

/// Sends blocks one after the other; each is received before the next is sent. Returns how many different blocks the
/// last eight sends used. After each send, round trips by another stream give its completion time to arrive, without
/// polling for it.
std::size_t blocks_in_use(StreamPair& pair, StreamPair& other, int round_trips) {
  std::deque<const std::byte*> last;
  for (int block = 0; block < 16; ++block) {
    const auto room = pair.client.lend(soon());
    EXPECT_TRUE(room.has_value()) << room.status().message();
    if (!room) return 0;
    if (last.size() == 8) last.pop_front();
    last.push_back(room->data());
    expect_ok(pair.client.commit(room->size()));
    EXPECT_TRUE(pair.server.next(soon()).value());
    for (int i = 0; i < round_trips; ++i) {
      send_block(other.client, other.server);
      send_block(other.server, other.client);
    }
  }
  return std::set(last.begin(), last.end()).size();
}

TEST(RDMAStreamTest, TheBlockThatWasSentLastIsLentFirst) {
  StreamPair pair({.block_bytes = 64 << 10, .write_blocks = 8, .read_blocks = 8, .borrowed_blocks = 0});
  StreamPair other;
  std::size_t in_use = 8;
  for (int trips = 1; trips <= 1024 && in_use > 3; trips *= 2) in_use = blocks_in_use(pair, other, trips);
  EXPECT_LE(in_use, 3U) << "blocks of 8; where one is signaled of two, three can be on their way";
}

TEST(RDMAStreamTest, AReleaseLetsAStoppedWriterContinue) {
  StreamPair pair;
  std::vector<StreamBlock> held;
  for (std::size_t i = 0; i < 4; ++i) {
    expect_ok(pair.client.write(pattern(1024, i * 1024), soon()));
    held.push_back(std::move(*pair.server.next(soon())));
  }
  expect_ok(pair.client.write(pattern(4096, 4096), soon()));  // copied into local blocks
  EXPECT_EQ(pair.client.flush(tiny()).code(), Errc::kTimeout);
  EXPECT_EQ(pair.client.lend(tiny()).code(), Errc::kTimeout);
  EXPECT_EQ(pair.client.counts().blocks_written, 4U);
  EXPECT_EQ(pair.client.counts().waits_for_peer, 1U);
  held.erase(held.begin() + 1);  // in any order
  EXPECT_TRUE(pair.client.lend(soon()).has_value());
  EXPECT_EQ(pair.client.counts().blocks_written, 5U);
  for (const StreamBlock& each : held) EXPECT_EQ(each.size(), 1024U);
  EXPECT_TRUE(std::ranges::equal(held[1].bytes(), pattern(1024, 2048)));
  held.clear();
  auto flushed = std::async(std::launch::async, [&] { return pair.client.flush(soon()); });
  for (std::size_t i = 4; i < 8; ++i) {
    EXPECT_TRUE(std::ranges::equal(pair.server.next(soon()).value().bytes(), pattern(1024, i * 1024)));
  }
  expect_ok(flushed.get());
}

/// A reader that holds all blocks except one still receives all data, block by block.
TEST(RDMAStreamTest, AReaderMayHoldAllBlocksButOne) {
  StreamPair pair;
  auto written = writing(pair.client, pattern(50 * 1024));
  std::vector<StreamBlock> held;
  for (std::size_t i = 0; i < 50; ++i) {
    auto block = pair.server.next(soon());
    ASSERT_TRUE(block.has_value()) << block.status().message();
    EXPECT_TRUE(std::ranges::equal(block->bytes(), pattern(1024, i * 1024)));
    if (held.size() < 3) held.push_back(std::move(*block));
  }
  EXPECT_FALSE(pair.server.next(soon()).value());
  held.clear();
  expect_ok(written.get());
}

TEST(RDMAStreamTest, ABlockMovesAndIsReleasedOnce) {
  StreamPair pair;
  expect_ok(pair.client.write(pattern(10), soon()));
  expect_ok(pair.client.flush(soon()));
  auto block = std::move(*pair.server.next(soon()));
  StreamBlock other = std::move(block);
  EXPECT_FALSE(block);  // NOLINT(bugprone-use-after-move): that is the question
  EXPECT_EQ(other.size(), 10U);
  other = StreamBlock();
  other.release();
  expect_arrives(pair.client, pair.server, 20'000);
}

TEST(RDMAStreamTest, ABlockMayOutliveItsStream) {
  StreamBlock block;
  {
    StreamPair pair;
    expect_ok(pair.client.write(pattern(10), soon()));
    expect_ok(pair.client.flush(soon()));
    block = std::move(*pair.server.next(soon()));
  }
  EXPECT_TRUE(std::ranges::equal(block.bytes(), pattern(10)));
}

TEST(RDMAStreamTest, ReadingAndLendingMix) {
  StreamPair pair;
  expect_ok(pair.client.write(pattern(1500), soon()));
  expect_ok(pair.client.flush(soon()));
  std::array<std::byte, 100> some;
  EXPECT_EQ(pair.server.read(some, soon()).value(), 100U);
  const auto rest = pair.server.next(soon());
  EXPECT_TRUE(std::ranges::equal(rest.value().bytes(), pattern(924, 100)));
  EXPECT_EQ(pair.server.next(soon()).value().size(), 476U);
}

// Borrowed memory -----------------------------------------------------------------------------------------------------

TEST(RDMAStreamTest, BlocksAreForwardedToAnotherStreamWithoutACopy) {
  const StreamOptions options = small_stream();
  StreamPair up(options);
  EndPointPair ends(config_for(options), config_for(options));
  // The second hop uses the first hop's device: one protection domain.
  HcaConfig config = config_for(options);
  rdmacomm::testing::TcpPair tcp;
  EndPointPair::introduce(*tcp.client, *tcp.server);
  auto near =
      EndPointCore::create({.device = up.ends.device, .connector = std::move(tcp.client), .config = config}).value();
  auto far = ends.make(std::move(tcp.server), config);
  expect_ok(EndPointPair::join(*near, *far));
  expect_ok(EndPointPair::join(*far, *near));
  expect_ok(near->mark_established());
  expect_ok(far->mark_established());
  auto opening = std::async(std::launch::async, [&] { return StreamPair::open(far, options); });
  auto down = StreamPair::open(near, options);
  auto last = opening.get();

  constexpr std::size_t kAll = 200'000;
  auto written = writing(up.client, pattern(kAll));
  auto arrived = std::async(std::launch::async, [&] { return read_all(last); });
  for (;;) {
    auto block = up.server.next(soon());
    ASSERT_TRUE(block.has_value()) << block.status().message();
    if (!*block) break;
    const auto shared = std::make_shared<StreamBlock>(std::move(*block));
    const Status sent = down.write_from(shared->slice(), shared, soon());
    ASSERT_TRUE(sent.ok()) << sent.message();
  }
  EXPECT_EQ(down.lend(soon()).value().size(), 1024U);
  expect_ok(down.finish(soon()));
  EXPECT_TRUE(arrived.get() == pattern(kAll));
  expect_ok(written.get());
}

TEST(RDMAStreamTest, BorrowedMemoryIsKeptUntilItIsSentInOrder) {
  StreamPair pair;
  auto owner = std::make_shared<RDMABuffer>(RDMABuffer::allocate(pair.ends.device, {.block_bytes = 5000}).value());
  std::ranges::copy(pattern(5000, 7), owner->data());
  const std::weak_ptr<RDMABuffer> watched = owner;
  expect_ok(pair.client.write(pattern(7), soon()));
  const BufferSlice all = owner->at(0);
  expect_ok(pair.client.write_from(all, std::move(owner), soon()));
  EXPECT_FALSE(watched.expired());  // five segments; the peer has four blocks
  expect_ok(pair.client.write(pattern(100, 5007), soon()));
  auto finished = std::async(std::launch::async, [&] { return pair.client.finish(soon()); });
  EXPECT_TRUE(read_all(pair.server) == pattern(5107));
  expect_ok(finished.get());
  EXPECT_TRUE(watched.expired());
}

/// Neither the limit of borrowed slices nor the peer's credits make the writer poll here.
TEST(RDMAStreamTest, LargeBorrowedSlicesAreReleasedAsSoonAsTheyAreSent) {
  constexpr std::uint32_t kBytes = 64 << 10;
  StreamOptions options = small_stream();
  options.block_bytes = kBytes;
  options.borrowed_blocks = options.read_blocks = 200;
  StreamPair pair(options);
  const auto memory = RDMABuffer::allocate(pair.ends.device, {.block_bytes = kBytes}).value();
  auto owner = std::make_shared<int>();
  const std::weak_ptr<int> watched = owner;
  expect_ok(pair.client.write_from(memory.at(0), std::move(owner), soon()));
  int more = 0;
  for (; more < 90 && !watched.expired(); ++more) {
    EXPECT_EQ(pair.server.next(soon()).value().size(), kBytes);
    expect_ok(pair.client.write_from(memory.at(0), nullptr, soon()));
  }
  EXPECT_TRUE(watched.expired()) << "after " << more << " more of them";
}

/// FINISHED uses the receive that HELLO used.
TEST(RDMAStreamTest, TheReceiveForFinishedIsPostedAtTheEnd) {
  StreamPair pair;
  const RDMAChannel& channel = *pair.ends.client->channel(kStreamChannel);
  EXPECT_EQ(channel.outstanding_recvs(), small_stream().recv_depth() - 1);
  auto finished = std::async(std::launch::async, [&] { return pair.client.finish(soon()); });
  EXPECT_FALSE(pair.server.next(soon()).value());
  expect_ok(finished.get());
  EXPECT_EQ(channel.outstanding_recvs(), small_stream().recv_depth());
}

TEST(RDMAStreamTest, BorrowedSlicesAreLimited) {
  StreamPair pair;
  const auto memory = RDMABuffer::allocate(pair.ends.device, {.block_bytes = 4096}).value();
  expect_ok(pair.client.write_from(memory.at(0), nullptr, soon()));
  expect_ok(pair.client.write_from(memory.at(0).first(1), nullptr, soon()));
  expect_ok(pair.client.write_from(memory.at(0).first(1), nullptr, soon()));
  EXPECT_EQ(pair.client.write_from(memory.at(0), nullptr, tiny()).code(), Errc::kTimeout);
  expect_ok(pair.client.write_from(memory.at(0).first(0), nullptr, tiny()));
  auto finished = std::async(std::launch::async, [&] { return pair.client.finish(soon()); });
  EXPECT_EQ(read_all(pair.server).size(), 4098U);
  expect_ok(finished.get());
}

// Ends ----------------------------------------------------------------------------------------------------------------

TEST(RDMAStreamTest, FinishWaitsUntilThePeerHasTakenEverything) {
  StreamPair pair;
  expect_ok(pair.client.write(pattern(10), soon()));
  EXPECT_EQ(pair.client.finish(tiny()).code(), Errc::kTimeout);
  auto block = std::move(*pair.server.next(soon()));
  EXPECT_FALSE(pair.server.next(soon()).value());
  EXPECT_EQ(pair.client.finish(tiny()).code(), Errc::kTimeout);  // the block is still in use
  block.release();
  expect_ok(pair.client.finish(soon()));
  expect_ok(pair.client.finish(soon()));
  EXPECT_EQ(pair.client.lend(soon()).code(), Errc::kWrongState);
}

TEST(RDMAStreamTest, CloseEndsBothDirectionsInOrder) {
  for (const PollingMode mode : {PollingMode::kBusyPoll, PollingMode::kCompletionChannel}) {
    StreamPair pair(small_stream(), mode);
    expect_ok(pair.client.write(pattern(10), soon()));
    auto closing = std::async(std::launch::async, [&] { return pair.client.close(soon()); });
    std::array<std::byte, 100> some;
    EXPECT_EQ(pair.server.read(some, soon()).value(), 10U);
    expect_ok(pair.server.close(soon()));
    expect_ok(closing.get());
    expect_ok(pair.server.close(tiny()));
    EXPECT_EQ(pair.server.lend(soon()).code(), Errc::kWrongState);
    EXPECT_FALSE(pair.client.next(soon()).value());
  }
}

TEST(RDMAStreamTest, CloseMayFollowFinishAndTheEnd) {
  StreamPair pair;
  auto written = writing(pair.client, pattern(3000));
  EXPECT_TRUE(read_all(pair.server) == pattern(3000));
  expect_ok(written.get());
  auto closing = std::async(std::launch::async, [&] { return pair.client.close(soon()); });
  expect_ok(pair.server.close(soon()));
  expect_ok(closing.get());
  pair.ends.client->stop();
  EndPointPair::watch(*pair.ends.server);
  expect_ok(pair.server.close(tiny()));  // repeats of finished work succeed
}

TEST(RDMAStreamTest, CloseWaitsForThePeersEnd) {
  StreamPair pair;
  EXPECT_EQ(pair.client.close(tiny()).code(), Errc::kTimeout);
  EXPECT_FALSE(pair.server.next(soon()).value());
  EXPECT_EQ(pair.client.close(tiny()).code(), Errc::kTimeout);
  auto finishing = std::async(std::launch::async, [&] { return pair.server.finish(soon()); });
  expect_ok(pair.client.close(soon()));
  expect_ok(finishing.get());
}

TEST(RDMAStreamTest, ACloseThatWaitsForABlockSaysSo) {
  StreamPair pair;
  expect_ok(pair.server.write(std::as_bytes(std::span("abc", 3)), soon()));
  expect_ok(pair.server.flush(soon()));
  const auto block = pair.client.next(soon());
  ASSERT_TRUE(block) << block.message();
  EXPECT_THAT(pair.client.close(tiny()).message(), HasSubstr("the application holds 1 received block"));
}

TEST(RDMAStreamTest, CloseWithUnreadBytesIsAnAbort) {
  for (const bool partly_read : {false, true}) {
    StreamPair pair;
    expect_ok(pair.client.write(pattern(10), soon()));
    expect_ok(pair.client.flush(soon()));
    std::array<std::byte, 4> some;
    if (partly_read) {
      EXPECT_EQ(pair.server.read(some, soon()).value(), 4U);
    }
    EXPECT_EQ(pair.server.close(soon()).code(), Errc::kAborted);
    const Status there = pair.client.close(soon());
    EXPECT_EQ(there.code(), Errc::kAborted);
    EXPECT_THAT(there.message(), HasSubstr("before all data was read"));
  }
}

TEST(RDMAStreamTest, AnAbortHasAReasonAtBothEnds) {
  StreamPair pair;
  expect_ok(pair.client.write(pattern(10), soon()));
  expect_ok(pair.client.flush(soon()));
  pair.client.abort("the disk is full\n");
  std::array<std::byte, 100> some;
  EXPECT_EQ(pair.server.read(some, soon()).value(), 10U);  // received before the abort
  const auto read = pair.server.read(some, soon());
  EXPECT_EQ(read.code(), Errc::kAborted);
  EXPECT_THAT(read.error().message(), HasSubstr("has aborted the stream: the disk is full?"));
  EXPECT_EQ(pair.server.write(pattern(1), soon()).code(), Errc::kAborted);
  EXPECT_EQ(pair.server.finish(soon()).code(), Errc::kAborted);
  const Status here = pair.client.finish(soon());
  EXPECT_EQ(here.code(), Errc::kAborted);
  EXPECT_THAT(here.message(), HasSubstr("the stream was aborted locally"));
  EXPECT_EQ(pair.client.next(soon()).code(), Errc::kAborted);
}

TEST(RDMAStreamTest, AReaderThatAbortsStopsAWriterThatWaits) {
  StreamPair pair;
  auto written = writing(pair.client, pattern(100'000));
  pair.server.abort("größe " + std::string(1000, 'x') + ": no space left");
  const Status stopped = written.get();
  EXPECT_EQ(stopped.code(), Errc::kAborted);
  EXPECT_THAT(stopped.message(), HasSubstr("größe xx"));
  EXPECT_THAT(stopped.message(), HasSubstr("xx: no space left"));
}

TEST(RDMAStreamTest, AnAbortEndsTheWaitOfAnotherThread) {
  for (const PollingMode mode : {PollingMode::kBusyPoll, PollingMode::kCompletionChannel}) {
    StreamPair pair(small_stream(), mode);
    auto reading = std::async(std::launch::async, [&] { return pair.client.next(soon()).code(); });
    auto finishing = std::async(std::launch::async, [&] { return pair.client.finish(soon()).code(); });
    (void)read_all(pair.server);
    EXPECT_FALSE(finishing.get());
    pair.client.abort("enough");
    EXPECT_EQ(reading.get(), Errc::kAborted);
  }
}

TEST(RDMAStreamTest, DestroyingAnUnfinishedStreamIsNoEnd) {
  StreamPair pair;
  expect_ok(pair.client.write(pattern(10), soon()));
  expect_ok(pair.client.flush(soon()));
  pair.client = {};
  std::array<std::byte, 100> some;
  EXPECT_EQ(pair.server.read(some, soon()).value(), 10U);
  const auto read = pair.server.read(some, soon());
  EXPECT_EQ(read.code(), Errc::kAborted);
  EXPECT_THAT(read.error().message(), HasSubstr("closed before its end"));
}

TEST(RDMAStreamTest, AReaderMayCloseAtOnceAfterTheEnd) {
  for (int round = 0; round < 20; ++round) {
    StreamPair pair;
    auto written = writing(pair.client, pattern(3000));
    EXPECT_EQ(read_all(pair.server).size(), 3000U);
    pair.server = {};
    expect_ok(pair.ends.server->close());
    expect_ok(written.get());
  }
}

TEST(RDMAStreamTest, APeerThatIsLostEndsAllWaits) {
  for (const PollingMode mode : {PollingMode::kBusyPoll, PollingMode::kCompletionChannel}) {
    StreamPair pair(small_stream(), mode);
    auto reading = std::async(std::launch::async, [&] { return pair.client.next(soon()).code(); });
    auto written = writing(pair.client, pattern(100'000));
    pair.ends.server->connector().shutdown();
    EndPointPair::watch(*pair.ends.client);
    EXPECT_EQ(reading.get(), Errc::kPeerLost);
    EXPECT_EQ(written.get().code(), Errc::kPeerLost);
    EXPECT_EQ(pair.client.status().code(), Errc::kPeerLost);
  }
}

TEST(RDMAStreamTest, TheEndOfTheLocalEndpointEndsIt) {
  StreamPair pair;
  auto reading = std::async(std::launch::async, [&] { return pair.client.next(soon()).code(); });
  pair.ends.client->stop();
  EXPECT_EQ(reading.get(), Errc::kStopped);
  EXPECT_EQ(pair.client.write(pattern(10'000), soon()).code(), Errc::kStopped);
}

// Opening -------------------------------------------------------------------------------------------------------------

TEST(RDMAStreamTest, OptionsOutsideTheirRangesAreRefused) {
  EndPointPair ends(config_for(small_stream()));
  const auto refused = [&](const StreamOptions& options, const char* what) {
    const auto opened = RDMAStream::open(ends.client, *ends.client->channel(kStreamChannel), options, soon());
    EXPECT_EQ(opened.code(), Errc::kInvalidArgument);
    EXPECT_THAT(opened.status().message(), HasSubstr(what));
  };
  refused({.block_bytes = 1000}, "block_bytes is 1000; it must be 1024..1073741824");
  refused({.write_blocks = -1}, "write_blocks is -1; it must be 0..4096");
  refused({.read_blocks = 4097}, "read_blocks is 4097");
  refused({.borrowed_blocks = -2}, "borrowed_blocks is -2");
  refused({.block_bytes = 1024, .write_blocks = 100}, "'stream' is too small for the stream");
}

TEST(RDMAStreamTest, AChannelThatOthersPollIsRefused) {
  HcaConfig config = config_for(small_stream());
  config.channels.front().own_completion_queue = false;
  EndPointPair ends(config);
  const auto opened = RDMAStream::open(ends.client, *ends.client->channel(kStreamChannel), small_stream(), soon());
  EXPECT_EQ(opened.code(), Errc::kWrongState);
}

TEST(RDMAStreamTest, ThreadsOpenTheirStreamsAtATime) {
  constexpr int kStreams = 8;
  const EndPointPair ends(config_for(small_stream(), kStreams));
  const auto open_at = [&](const std::shared_ptr<EndPointCore>& endpoint, int index) {
    return std::async(std::launch::async, [&, endpoint, index] {
      return StreamPair::open(endpoint, small_stream(), kStreamChannel + (index == 0 ? "" : std::to_string(index)));
    });
  };
  std::vector<std::future<RDMAStream>> opening;
  for (int i = 0; i < kStreams; ++i) {
    opening.push_back(open_at(ends.client, i));
    opening.push_back(open_at(ends.server, kStreams - 1 - i));
  }
  for (auto& each : opening) EXPECT_TRUE(each.get());
}

TEST(RDMAStreamTest, AStreamIsInTheProtectionDomainOfItsChannel) {
  HcaConfig config = config_for(small_stream());
  const std::shared_ptr<DeviceCore> device = DeviceCore::open({.name = "soft0"}).value();
  config.domain = ProtectionDomain::create(device).value();
  EndPointPair ends(config, config_for(small_stream()), device);
  auto opening = std::async(std::launch::async, [&] { return StreamPair::open(ends.server, small_stream()); });
  auto client = StreamPair::open(ends.client, small_stream());
  auto server = opening.get();
  ASSERT_TRUE(client && server);
  auto reading = std::async(std::launch::async, [&] { return read_all(server); });
  ASSERT_TRUE(client.write(pattern(10'000), soon()).ok());
  ASSERT_TRUE(client.finish(soon()).ok());
  EXPECT_EQ(reading.get(), pattern(10'000));
}

TEST(RDMAStreamTest, OpeningWaitsForThePeerUntilTheDeadline) {
  EndPointPair ends(config_for(small_stream()));
  const auto opened = RDMAStream::open(ends.client, *ends.client->channel(kStreamChannel), small_stream(), tiny());
  EXPECT_EQ(opened.code(), Errc::kTimeout);
}

TEST(RDMAStreamTest, ADirectionWithoutBlocksDoesNotExist) {
  StreamOptions reader = small_stream();
  reader.write_blocks = reader.borrowed_blocks = 0;
  StreamOptions writer = small_stream();
  writer.read_blocks = 0;
  StreamPair pair(writer, reader);
  EXPECT_EQ(pair.server.lend(soon()).code(), Errc::kWrongState);
  EXPECT_EQ(pair.server.write_from({}, nullptr, soon()).code(), Errc::kWrongState);
  expect_arrives(pair.client, pair.server, 10'000);
  auto ended = std::async(std::launch::async, [&] { return pair.server.finish(soon()); });
  EXPECT_FALSE(pair.client.next(soon()).value());
  expect_ok(ended.get());
}

}  // namespace
}  // namespace rdmacomm
