// Two processes, one of which is killed or stopped: the effect on the TCP connection and on the queue pair.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>

#include "connector/connector.h"
#include "connector/tcp_connection.h"
#include "connector/tcp_listen_socket.h"
#include "contract/contract_test.h"
#include "support/forked_child.h"

namespace rdmacomm::contract {
namespace {

using namespace std::chrono_literals;

/// Sent by the child over the socket pair to describe its memory.
struct RegionInfo {
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
};

/// One process: a channel, linked to the other process, and a TCP connection. Members in creation order.
struct DyingSide {
  ChannelEnd end;
  std::unique_ptr<Link> link;
  std::unique_ptr<Connector> tcp;

  DyingSide(const TestDevice& device, Role role, int line, const AdapterConfig& config)
      : end(ConnectedPair::make_end(device.choice(), "channel", config, false).value()) {
    auto linked = PairLinker::create()->link(link_end(end.channel->adapter(), device.address), role, line);
    EXPECT_TRUE(linked.has_value()) << linked.status().message();
    if (linked) link = std::move(*linked);
  }
};

void send_card(int line, const RDMABuffer& buffer) {
  const RegionInfo info{buffer.remote_region().address, buffer.remote_region().rkey};
  ASSERT_EQ(::send(line, &info, sizeof(info), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(info)));
}

/// Code of the child process: connects, offers a buffer, and continues until it is killed.
using Body = void (*)(int line, std::uint16_t port);

void idle(int line, std::uint16_t port) {
  DyingSide side(TestDevice::peers(), Role::kPassive, line, {});
  auto tcp = TcpConnection::connect({"127.0.0.1", port});
  ASSERT_TRUE(tcp.has_value()) << tcp.error().message();
  const auto buffer = side.end.buffer(4096);
  send_card(line, buffer);
  (void)pause();
}

constexpr std::size_t kLongBytes = 1 << 20;
constexpr auto kWritten = std::byte{0xab};

/// Writes continuously to the buffer that the parent has described.
void keep_writing(int line, std::uint16_t port) {
  DyingSide side(TestDevice::peers(), Role::kPassive, line, {});
  auto tcp = TcpConnection::connect({"127.0.0.1", port});
  ASSERT_TRUE(tcp.has_value()) << tcp.error().message();
  const auto buffer = side.end.buffer(kLongBytes);
  std::fill_n(buffer.data(), buffer.size(), kWritten);
  send_card(line, buffer);
  RegionInfo target;
  ASSERT_EQ(::recv(line, &target, sizeof(target), MSG_WAITALL), static_cast<ssize_t>(sizeof(target)));
  do {
    ASSERT_TRUE(side.end.channel->post_write(buffer.at(0), {target.address, kLongBytes, target.rkey}, {.id = 1}));
  } while (side.end.next(patience()).ok());
  (void)pause();
}

class PeerDeathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(TestDevice::own().why_not(), "");
    ASSERT_EQ(TestDevice::peers().why_not(), "");
  }
  void start(const AdapterConfig& config = {}, Body body = idle) {
    listener_ = TcpListenSocket::listen({"127.0.0.1", 0}).value();
    child_ = std::make_unique<testing::ForkedChild>([this, body](int line) { body(line, listener_->port()); });
    side_ = std::make_unique<DyingSide>(TestDevice::own(), Role::kActive, child_->line(), config);
    ASSERT_NE(side_->link, nullptr);
    RegionInfo info;
    ASSERT_EQ(::recv(child_->line(), &info, sizeof(info), MSG_WAITALL), static_cast<ssize_t>(sizeof(info)));
    remote_ = {info.address, 4096, info.rkey};
    const Deadline deadline = patience();
    while (side_->tcp == nullptr && !deadline.passed()) side_->tcp = listener_->accept().value();
    ASSERT_NE(side_->tcp, nullptr);
    source_ = side_->end.buffer(4096);
  }
  [[nodiscard]] const ChannelEnd& end() const { return side_->end; }
  /// Posts one WRITE and returns its completion.
  Completion write() {
    EXPECT_TRUE(end().channel->post_write(source_.at(0), remote_, {.id = 1}));
    return end().next();
  }
  void expect_peer_gone() {
    if (!has(kind(), Trait::kAcknowledges)) {
      EXPECT_TRUE(side_->link->ends(patience()));
      EXPECT_TRUE(end().channel->post_write(source_.at(0), remote_, {.id = 1}));
      return expect_last_words(end(), Fault::kPeerGone, 1);
    }
    // The peer's kernel or device may still answer for a short time.
    Completion last = write();
    for (const Deadline deadline = patience(); last.ok() && !deadline.passed();) last = write();
    EXPECT_TRUE(codes_of(kind(), Fault::kPeerGone).contains(last.error)) << last.status().message();
  }
  [[nodiscard]] DeviceKind kind() const { return kind_of(*end().device); }

  std::unique_ptr<TcpListenSocket> listener_;
  std::unique_ptr<testing::ForkedChild> child_;
  std::unique_ptr<DyingSide> side_;
  RDMABuffer source_;
  RemoteRegion remote_;
};

TEST_F(PeerDeathTest, TcpReportsAKilledPeer) {
  start();
  EXPECT_TRUE(write().ok());
  EXPECT_EQ(side_->tcp->check_peer(), PeerState::kOpen);
  child_->kill();
  const auto message = side_->tcp->receive_message(MessageType::kUser, patience());
  ASSERT_FALSE(message.has_value());
  EXPECT_EQ(message.code(), Errc::kPeerLost) << message.error().message();
  EXPECT_EQ(side_->tcp->check_peer(), PeerState::kLost);
}

TEST_F(PeerDeathTest, RequestsToAKilledPeerFail) {
  start({.ack_timeout = 4ms, .retry_count = 3});
  EXPECT_TRUE(write().ok());
  child_->kill();
  expect_peer_gone();
}

// Some devices never give up by themselves. With them, the library must end the requests.
TEST_F(PeerDeathTest, ADrainEndsRequestsToAKilledPeer) {
  start({.ack_timeout = 67ms, .retry_count = 7});
  ASSERT_TRUE(end().channel->post_recv(source_.at(0), {.id = 5}));
  child_->kill();
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(end().channel->post_write(source_.at(0), remote_, {.id = i}));
  const Status drained = end().channel->drain(patience());
  EXPECT_TRUE(drained.ok()) << drained.message();
  EXPECT_EQ(end().channel->outstanding_sends(), 0);
  EXPECT_EQ(end().channel->outstanding_recvs(), 0);
}

TEST_F(PeerDeathTest, SevenRetriesEnd) {
  start({.ack_timeout = 4ms, .retry_count = 7});
  if (!has(kind(), Trait::kGivesUpAtRetryCount7)) GTEST_SKIP() << "property: retry_count 7 means for ever";
  child_->kill();
  expect_peer_gone();
}

TEST_F(PeerDeathTest, AStoppedPeersMemoryIsStillAccessed) {
  start();
  if (!has(kind(), Trait::kServesStoppedProcesses)) GTEST_SKIP() << "property: a thread of the peer's serves";
  child_->stop();
  for (int i = 0; i < 10; ++i) {
    const Completion written = write();
    ASSERT_TRUE(written.ok()) << written.status().message();
  }
  ASSERT_TRUE(end().channel->post_read(source_.at(0), remote_, {.id = 2}));
  EXPECT_TRUE(end().next().ok());
  EXPECT_EQ(side_->tcp->check_peer(), PeerState::kOpen);
}

/// The state of a stopped peer does not matter: a device does not wait for its peers.
TEST_F(PeerDeathTest, AStoppedPeerDoesNotDelayTheEnd) {
  for (int round = 0; round < 3; ++round) {
    start({.ack_timeout = 4ms, .retry_count = 3}, keep_writing);
    auto target = end().buffer(kLongBytes);
    send_card(child_->line(), target);
    const std::atomic_ref<std::byte> first(*target.data());
    for (const Deadline deadline = patience(); first.load() != kWritten && !deadline.passed();) sched_yield();
    EXPECT_EQ(first.load(), kWritten);
    ASSERT_TRUE(end().channel->post_recv(source_.at(0), {.id = 5}));
    child_->stop();
    const Status drained = end().channel->drain(patience());
    EXPECT_TRUE(drained.ok()) << drained.message();
    target = {};
    source_ = {};
    side_.reset();
    child_.reset();
  }
}

}  // namespace
}  // namespace rdmacomm::contract
