// Heartbeats, with the time as a parameter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "connector/byte_stream.h"
#include "connector/tcp_pair.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using rdmacomm::testing::as_bytes;
using rdmacomm::testing::as_text;
using rdmacomm::testing::soon;
using rdmacomm::testing::TcpPair;
using ::testing::HasSubstr;

constexpr std::chrono::steady_clock::time_point kStart{1h};

/// Waits until the last data of `sender` has reached the peer's socket. Loopback does not guarantee that by itself: the
/// two sockets have separate buffers.
void deliver(Connector& sender, Connector& receiver) {
  ASSERT_TRUE(sender.send_message(MessageType::kUser, as_bytes("delivered"), soon()).ok());
  ASSERT_TRUE(receiver.receive_message(MessageType::kUser, soon()));
}

TEST(KeepAlive, ASilentPeerIsLost) {
  const TcpPair pair;
  EXPECT_EQ(pair.client->keep_alive(kStart, 5s), PeerState::kOpen);
  EXPECT_EQ(pair.client->keep_alive(kStart + 4999ms, 5s), PeerState::kOpen);
  EXPECT_EQ(pair.client->keep_alive(kStart + 5s, 5s), PeerState::kLost);
  EXPECT_EQ(pair.client->status().code(), Errc::kPeerLost);
  EXPECT_THAT(pair.client->status().message(), HasSubstr("sent nothing for 5 s"));
  EXPECT_THAT(pair.client->status().message(), HasSubstr(pair.client->peer_address()));
}

TEST(KeepAlive, EndsAReceiverThatWaits) {
  const TcpPair pair;
  ASSERT_EQ(pair.client->keep_alive(kStart, 5s), PeerState::kOpen);
  Status received;
  std::thread receiver([&] { received = pair.client->receive_message(MessageType::kUser, soon()).status(); });
  EXPECT_EQ(pair.client->keep_alive(kStart + 4s, 5s), PeerState::kOpen);
  EXPECT_EQ(pair.client->keep_alive(kStart + 8s, 5s), PeerState::kLost);
  receiver.join();
  EXPECT_EQ(received.code(), Errc::kPeerLost);
}

TEST(KeepAlive, HeartbeatsOfThePeerKeepTheConnection) {
  const TcpPair pair;
  ASSERT_EQ(pair.client->keep_alive(kStart, 5s), PeerState::kOpen);
  ASSERT_EQ(pair.server->keep_alive(kStart, 5s), PeerState::kOpen);
  deliver(*pair.server, *pair.client);
  EXPECT_EQ(pair.client->keep_alive(kStart + 4s, 5s), PeerState::kOpen);
  EXPECT_EQ(pair.client->keep_alive(kStart + 8s, 5s), PeerState::kOpen);
  EXPECT_EQ(pair.client->keep_alive(kStart + 9s, 5s), PeerState::kLost) << "5 s after it was heard last";
}

TEST(KeepAlive, ALongPauseOfTheLocalProcessIsNotBlamedOnThePeer) {
  const TcpPair pair;
  ASSERT_EQ(pair.client->keep_alive(kStart, 5s), PeerState::kOpen);
  EXPECT_EQ(pair.client->keep_alive(kStart + 1h, 5s), PeerState::kOpen) << "this process was stopped";
  EXPECT_EQ(pair.client->keep_alive(kStart + 1h + 4s, 5s), PeerState::kOpen);
  EXPECT_EQ(pair.client->keep_alive(kStart + 1h + 5s, 5s), PeerState::kLost);
}

TEST(KeepAlive, APeerThatContinuesLaterLearnsTheReason) {
  const TcpPair pair;
  ASSERT_EQ(pair.client->keep_alive(kStart, 5s), PeerState::kOpen);
  ASSERT_EQ(pair.client->keep_alive(kStart + 4s, 5s), PeerState::kOpen);
  ASSERT_EQ(pair.client->keep_alive(kStart + 5s, 5s), PeerState::kLost);
  const auto told = pair.server->receive_message(MessageType::kUser, soon());
  EXPECT_EQ(told.code(), Errc::kPeerRefused);
  EXPECT_THAT(told.status().message(), HasSubstr("you sent no heartbeat for 5 s"));
}

TEST(KeepAlive, WithoutALimitASilentPeerIsKept) {
  const TcpPair pair;
  for (int i = 0; i < 100; ++i) ASSERT_EQ(pair.client->keep_alive(kStart + i * 1h, 0s), PeerState::kOpen);
}

TEST(KeepAlive, HeartbeatsDisturbNoMessage) {
  const TcpPair pair;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(pair.client->keep_alive(kStart + i * 1s, 0s), PeerState::kOpen);
    ASSERT_TRUE(pair.client->send_message(MessageType::kUser, as_bytes(std::to_string(i)), soon()).ok());
  }
  pair.client->send_goodbye();
  for (int i = 0; i < 20; ++i) {
    auto got = pair.server->receive_message(MessageType::kUser, soon());
    ASSERT_TRUE(got) << got.status().message();
    EXPECT_EQ(as_text(*got), std::to_string(i));
  }
  EXPECT_EQ(pair.server->check_peer(), PeerState::kClosed);
}

/// Accepts only the number of bytes that the test sets, and never has data to receive.
class NarrowStream final : public ByteStream {
 public:
  std::vector<std::byte> taken;
  std::size_t room = 0;

  Transfer receive(std::span<std::byte> /*room*/) override { return {.error = would_block()}; }
  Transfer send(std::span<const std::byte> bytes) override {
    const std::size_t count = std::min(room, bytes.size());
    if (count == 0) return {.error = would_block()};
    taken.insert(taken.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    room -= count;
    return {.bytes = count};
  }
  void await_input(Deadline /*deadline*/) override {}
  bool await_room(Deadline /*deadline*/) override { return room > 0; }
  bool ended() override { return false; }
  void end_sending() noexcept override {}
  void shut_down(LastBytes /*last*/) noexcept override {}
  WatchedFd watched() const noexcept override { return {}; }
  const std::string& local_address() const noexcept override { return name_; }
  const std::string& peer_address() const noexcept override { return name_; }
  const Gid& local_gid() const noexcept override { return gid_; }

 private:
  static std::error_code would_block() { return std::make_error_code(std::errc::operation_would_block); }
  std::string name_ = "narrow";
  Gid gid_{};
};

class NarrowConnector final : public Connector {
 public:
  explicit NarrowConnector(std::unique_ptr<ByteStream> stream) : Connector(std::move(stream)) {}
};

TEST(KeepAlive, APartlySentHeartbeatIsCompletedBeforeTheNextMessage) {
  auto owned = std::make_unique<NarrowStream>();
  NarrowStream& stream = *owned;
  NarrowConnector connector(std::move(owned));
  stream.room = 5;
  EXPECT_EQ(connector.keep_alive(kStart, 0s), PeerState::kOpen);
  EXPECT_EQ(connector.keep_alive(kStart + 1s, 0s), PeerState::kOpen) << "no room for the rest";
  EXPECT_EQ(connector.send_message(MessageType::kUser, as_bytes("no"), Deadline::after({})).code(), Errc::kTimeout);
  EXPECT_TRUE(connector.status().ok());
  stream.room = 3;
  EXPECT_EQ(connector.keep_alive(kStart + 2s, 0s), PeerState::kOpen) << "a part of the rest";
  stream.room = 1000;
  ASSERT_TRUE(connector.send_message(MessageType::kUser, as_bytes("yes"), Deadline::after({})).ok());
  EXPECT_EQ(connector.keep_alive(kStart + 2s, 0s), PeerState::kOpen);

  std::vector<std::byte> expected = *frame_message(MessageType::kHeartbeat, {});
  for (const auto& more :
       {*frame_message(MessageType::kUser, as_bytes("yes")), *frame_message(MessageType::kHeartbeat, {})}) {
    expected.insert(expected.end(), more.begin(), more.end());
  }
  EXPECT_EQ(stream.taken, expected);
}

}  // namespace
}  // namespace rdmacomm
