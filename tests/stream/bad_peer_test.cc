// Violations of the protocol by a peer: each results in one clear local error, which is also sent to the peer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stream/raw_stream_peer.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::config_for;
using rdmacomm::testing::EndPointPair;
using rdmacomm::testing::kStreamChannel;
using rdmacomm::testing::pattern;
using rdmacomm::testing::RawStreamPeer;
using rdmacomm::testing::small_stream;
using rdmacomm::testing::soon;
using ::testing::HasSubstr;

class BadPeerTest : public ::testing::Test {
 protected:
  BadPeerTest() : ends_(config_for(small_stream()), peers_config()) {
    opening_ = std::async(std::launch::async, [this] {
      return RDMAStream::open(ends_.client, *ends_.client->channel(kStreamChannel), small_stream(), soon());
    });
    peer_ = std::make_unique<RawStreamPeer>(ends_.server, kStreamChannel);
  }
  ~BadPeerTest() override { stream_ = {}; }

  static HcaConfig peers_config() {
    StreamOptions large = small_stream();
    large.read_blocks = 16;
    return config_for(large);
  }
  void synchronize() {
    peer_->say_hello();
    auto opened = opening_.get();
    if (!opened) FAIL() << opened.status().message();
    stream_ = std::move(*opened);
    EXPECT_EQ(peer_->hear().header.kind, SegmentKind::kHello);
  }
  /// The local reader gets the error, and the peer does, too.
  void expect_refused(const char* why, Errc code = Errc::kBadMessage) {
    for (;;) {
      const auto read = stream_.next(soon());
      if (read.has_value()) continue;
      EXPECT_EQ(read.code(), code) << read.status().message();
      EXPECT_THAT(read.status().message(), HasSubstr(why));
      break;
    }
    EXPECT_THAT(peer_->hear_abort(), HasSubstr(why));
    EXPECT_EQ(stream_.write(pattern(1), soon()).code(), code);
  }
  Status opened_status() {
    const auto opened = opening_.get();
    return opened.status();
  }

  EndPointPair ends_;
  std::future<Result<RDMAStream>> opening_;
  std::unique_ptr<RawStreamPeer> peer_;
  RDMAStream stream_;
};

TEST_F(BadPeerTest, AnotherVersion) {
  auto hello = StreamHello{.block_bytes = 4096, .read_blocks = 4}.encode();
  hello[4] = std::byte{9};
  (void)peer_->send({.kind = SegmentKind::kHello}, hello);
  const Status refused = opened_status();
  EXPECT_EQ(refused.code(), Errc::kVersionMismatch);
  EXPECT_THAT(refused.message(), HasSubstr("a HELLO of stream version 9"));
  EXPECT_THAT(peer_->hear_abort(), HasSubstr("a HELLO of stream version 9"));
}

TEST_F(BadPeerTest, AStreamOfMessages) {
  peer_->say_hello(
      {.mode = StreamMode::kMessages, .immediate = true, .block_bytes = 4096, .read_blocks = 4, .part_bytes = 1});
  EXPECT_EQ(opened_status().code(), Errc::kIncompatiblePeer);
}

TEST_F(BadPeerTest, NoHello) {
  (void)peer_->send_data(pattern(10));
  const Status refused = opened_status();
  EXPECT_EQ(refused.code(), Errc::kBadMessage);
  EXPECT_THAT(refused.message(), HasSubstr("its first segment is not a HELLO"));
}

TEST_F(BadPeerTest, AMessageInAStreamOfBytes) {
  synchronize();
  (void)peer_->send({.kind = SegmentKind::kAnnounce},
                    Announcement{.region = {.length = 5}, .message_bytes = 5}.encode());
  expect_refused("announces a part of 5 bytes, which is more than");
}

TEST_F(BadPeerTest, TakesAPartThatWasNotAnnounced) {
  synchronize();
  (void)peer_->send({.kind = SegmentKind::kTaken, .value = 1});
  expect_refused("acknowledged 1 parts, but 0 parts");
}

TEST_F(BadPeerTest, ASecondHello) {
  synchronize();
  peer_->say_hello();
  expect_refused("a second HELLO");
}

TEST_F(BadPeerTest, ASegmentWithoutHeader) {
  synchronize();
  (void)peer_->send(pattern(15));
  expect_refused("its 15 bytes are less than a header");
}

TEST_F(BadPeerTest, AnUnknownKind) {
  synchronize();
  (void)peer_->send({.kind = static_cast<SegmentKind>(77)});
  expect_refused("its kind 77 is unknown");
}

TEST_F(BadPeerTest, ALengthThatIsWrong) {
  synchronize();
  (void)peer_->send_as({.kind = SegmentKind::kEnd, .length = 1024}, pattern(10));
  expect_refused("its header announces 1024 bytes");
}

TEST_F(BadPeerTest, ABlockWithoutBytes) {
  synchronize();
  (void)peer_->send_data({});
  expect_refused("it sent an empty block");
}

TEST_F(BadPeerTest, APeerWithoutImmediateData) {
  peer_->say_hello({.block_bytes = 4096, .read_blocks = 4});
  EXPECT_EQ(opened_status().code(), Errc::kIncompatiblePeer);
}

TEST_F(BadPeerTest, DataWithAHeader) {
  synchronize();
  (void)peer_->send({.kind = SegmentKind::kData}, pattern(10));
  expect_refused("data with a header");
}

TEST_F(BadPeerTest, ImmediateDataOfAnotherKind) {
  synchronize();
  (void)peer_->send_imm(immediate_of(SegmentKind::kEnd, 0), pattern(8));
  expect_refused("immediate data cannot have kind 4");
}

TEST_F(BadPeerTest, ACreditByImmediateDataWithBytes) {
  synchronize();
  (void)peer_->send_imm(immediate_of(SegmentKind::kCredit, 0), pattern(8));
  expect_refused("a credit must not have data bytes");
}

TEST_F(BadPeerTest, ACreditBeyondItsRange) {
  synchronize();
  (void)peer_->send({.kind = SegmentKind::kCredit, .credit = kCreditModulus});
  expect_refused("its credit 16777216 is out of range");
}

TEST_F(BadPeerTest, ACreditTooMany) {
  synchronize();
  ASSERT_TRUE(stream_.write(pattern(2048), soon()).ok());
  ASSERT_TRUE(stream_.flush(soon()).ok());
  (void)peer_->send({.kind = SegmentKind::kCredit, .credit = 3});
  expect_refused("credit for 3 blocks, but it holds only 2");
}

TEST_F(BadPeerTest, ACreditThatIsTakenBack) {
  synchronize();
  ASSERT_TRUE(stream_.write(pattern(2048), soon()).ok());
  ASSERT_TRUE(stream_.flush(soon()).ok());
  (void)peer_->send({.kind = SegmentKind::kCredit, .credit = 2});
  (void)peer_->send({.kind = SegmentKind::kCredit, .credit = 1});
  expect_refused("credit for 16777215 blocks");
}

TEST_F(BadPeerTest, ACreditWithBytes) {
  synchronize();
  (void)peer_->send({.kind = SegmentKind::kCredit}, pattern(1));
  expect_refused("it sent a CREDIT with data bytes");
}

TEST_F(BadPeerTest, MoreBlocksThanItsCredits) {
  synchronize();
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(peer_->send_data(pattern(1024, i * 1024)).ok());
  }
  std::vector<StreamBlock> held;
  for (std::size_t i = 0; i < 4; ++i) {
    auto block = stream_.next(soon());
    if (!block.has_value()) break;
    EXPECT_TRUE(std::ranges::equal(block->bytes(), pattern(1024, i * 1024)));
    held.push_back(std::move(*block));
  }
  EXPECT_EQ(held.size(), 4U);
  expect_refused("more than the 4 blocks that it may send");
}

/// The device refuses it, at both ends.
TEST_F(BadPeerTest, ABlockThatIsTooLarge) {
  synchronize();
  const Completion sent = peer_->send_data(pattern(1025));
  EXPECT_FALSE(sent.ok());
  const auto read = stream_.next(soon());
  EXPECT_EQ(read.code(), Errc::kBadMessage) << read.status().message();
  EXPECT_THAT(read.status().message(), HasSubstr("more than 1024 bytes"));
}

TEST_F(BadPeerTest, AnEndBeforeAllBytesHaveArrived) {
  synchronize();
  EXPECT_TRUE(peer_->send_data(pattern(10)).ok());
  WireWriter total;
  total.put(std::uint64_t{11});
  (void)peer_->send({.kind = SegmentKind::kEnd}, total.bytes());
  expect_refused("an END after 11 bytes, but 10 bytes have arrived");
}

TEST_F(BadPeerTest, AnEndOfAnotherLength) {
  synchronize();
  (void)peer_->send({.kind = SegmentKind::kEnd}, pattern(7));
  expect_refused("an END of 7 bytes");
}

TEST_F(BadPeerTest, BytesAfterTheEnd) {
  synchronize();
  (void)peer_->send({.kind = SegmentKind::kEnd}, std::vector<std::byte>(8));
  (void)peer_->send_data(pattern(10));
  std::vector<std::byte> none;
  EXPECT_FALSE(stream_.next(soon()).value());  // it was the end
  EXPECT_EQ(stream_.write(pattern(10'000), soon()).code(), Errc::kBadMessage);
}

TEST_F(BadPeerTest, ReportsAllAsTakenBeforeTheEnd) {
  synchronize();
  (void)peer_->send({.kind = SegmentKind::kFinished});
  expect_refused("sent a FINISHED before");
}

TEST_F(BadPeerTest, ReportsAllAsTakenWhileItHoldsBlocks) {
  synchronize();
  ASSERT_TRUE(stream_.write(pattern(10), soon()).ok());
  auto finishing = std::async(std::launch::async, [this] { return stream_.finish(soon()); });
  EXPECT_EQ(peer_->hear().header.kind, SegmentKind::kData);
  EXPECT_EQ(peer_->hear().header.kind, SegmentKind::kEnd);
  (void)peer_->send({.kind = SegmentKind::kFinished, .credit = 0});
  EXPECT_EQ(finishing.get().code(), Errc::kBadMessage);
}

TEST_F(BadPeerTest, AnAbortWithoutReason) {
  synchronize();
  (void)peer_->send({.kind = SegmentKind::kAbort}, pattern(1));
  EXPECT_EQ(stream_.next(soon()).code(), Errc::kAborted);
}

}  // namespace
}  // namespace rdmacomm
