// Two dangers for a process: an XRC initiator on another host requests more than it may, or reads none of the answers;
// and processes of this host are stopped while its requests need them. In all cases other clients continue to be
// served.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "softdev/local/peer.h"
#include "softdev/local/two_processes.h"
#include "softdev/queues/xrc_scene.h"
#include "softdev/tcp/tcp_raw_client.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::uint64_t kMiB = 1U << 20;

/// Measures the peak memory of this process from the constructor on.
class PeakMemory {
 public:
  PeakMemory() {
    std::ofstream("/proc/self/clear_refs") << 5;  // resets the peak
    before_ = peak();
  }
  [[nodiscard]] std::uint64_t grown_by() const { return std::max(peak(), before_) - before_; }

 private:
  static std::uint64_t peak() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) return std::stoull(line.substr(6)) * 1024;
    }
    return 0;
  }

  std::uint64_t before_ = 0;
};

/// A shared receive queue and a connection whose initiator is the test.
struct XrcTarget {
  WireVariable variable{"tcp"};
  Node node;
  Domain domain;
  Memory memory;
  Queue queue{node, domain};
  ManualPeer peer;
  Qp receiver;
  UniqueFd connection;

  /// fd  the file of the domain
  explicit XrcTarget(std::size_t bytes, int fd = -1)
      : domain(node, fd), memory(node, bytes), receiver(node, of_type(IBV_QPT_XRC_RECV, domain.xrcd)) {
    receiver.connect_to(peer.number);
    connection = connect_raw(receiver.number());
    TcpGreeting greeting = connection_greeting(Service::kXrc, peer.number, receiver.number());
    greeting.path_mtu = 4096;
    say(connection, greeting);
    const UniqueFd question = peer.accept();
    (void)hear<TcpGreeting>(question);
    welcome(question);
    EXPECT_EQ(hear<TcpWelcome>(connection).answer, Welcome::kYes);
  }
  void ask(ibv_wr_opcode opcode, std::uint32_t key, std::uint32_t length) const {
    TcpRequest request;
    request.opcode = static_cast<std::uint8_t>(opcode);
    request.length = length;
    request.key = key;
    request.queue = queue.number();
    request.address = memory.address();
    say(connection, request);
  }
  void expect_refused() const {
    const auto answer = hear<TcpAnswer>(connection);
    EXPECT_EQ(answer.kind, TcpAnswer::kFailed);
    EXPECT_EQ(answer.status, IBV_WC_REM_ACCESS_ERR);
  }
};

TEST(XrcHostile, AReadThatIsRefusedTakesNoMemory) {
  const XrcTarget scene(4096);
  const PeakMemory memory;
  scene.ask(IBV_WR_RDMA_READ, scene.memory.mr->rkey + 1, 512 * kMiB);
  scene.expect_refused();
  EXPECT_LT(memory.grown_by(), 64 * kMiB);
}

TEST(XrcHostile, AReadBeyondTheRegionTakesNoMemory) {
  const XrcTarget scene(4096);
  const PeakMemory memory;
  scene.ask(IBV_WR_RDMA_READ, scene.memory.mr->rkey, 512 * kMiB);
  scene.expect_refused();
  EXPECT_LT(memory.grown_by(), 64 * kMiB);
}

/// The request is refused before its data has arrived.
TEST(XrcHostile, AWriteBeyondTheRegionIsRefusedAtOnce) {
  const XrcTarget scene(4096);
  scene.ask(IBV_WR_RDMA_WRITE, scene.memory.mr->rkey, 512 * kMiB);
  scene.expect_refused();
}

TEST(XrcHostile, ReadsWithUnreadAnswersTakeNoMemory) {
  constexpr std::uint32_t kLong = 4 * kMiB;
  constexpr int kReads = 64;
  XrcTarget scene(kLong);
  scene.memory.fill(3);
  const PeakMemory memory;
  for (int i = 0; i < kReads; ++i) scene.ask(IBV_WR_RDMA_READ, scene.memory.mr->rkey, kLong);
  std::vector<std::byte> bytes(kLong);
  for (int i = 0; i < kReads; ++i) {
    const auto answer = hear<TcpAnswer>(scene.connection);
    ASSERT_EQ(answer.kind, TcpAnswer::kPayload);
    ASSERT_EQ(answer.length, kLong);
    ASSERT_EQ(recv(scene.connection.get(), bytes.data(), kLong, MSG_WAITALL), static_cast<ssize_t>(kLong));
    ASSERT_EQ(std::memcmp(bytes.data(), scene.memory.data, kLong), 0) << i;
  }
  EXPECT_LT(memory.grown_by(), kReads * kLong / 4);
}

/// The memory may be released while its bytes are being sent, although the answer has already announced the full
/// length.
TEST(XrcHostile, AReadOfMemoryThatIsDeregisteredEndsTheConnection) {
  constexpr std::uint32_t kLong = 64 * kMiB;
  XrcTarget scene(kLong);
  scene.ask(IBV_WR_RDMA_READ, scene.memory.mr->rkey, kLong);
  EXPECT_EQ(hear<TcpAnswer>(scene.connection).length, kLong);
  scene.memory.mr.reset();
  std::vector<std::byte> bytes(kLong);
  EXPECT_LT(recv(scene.connection.get(), bytes.data(), kLong, MSG_WAITALL), static_cast<ssize_t>(kLong));
}

/// Another client that connects to the same process gets an answer.
void expect_others_served(const XrcTarget& scene) {
  TcpGreeting greeting =
      connection_greeting(Service::kReliable, scene.peer.number, scene.receiver.number());  // which has another service
  const UniqueFd unknown = connect_raw(scene.receiver.number());
  say(unknown, greeting);
  EXPECT_NE(hear<TcpWelcome>(unknown).answer, Welcome::kYes);
}

/// While it lives, another initiator, which is stopped, holds its turn at the queue.
class StoppedInitiator {
 public:
  explicit StoppedInitiator(const Queue& queue) {
    constexpr std::uint32_t kInitiator = 77;
    int error = 0;
    peer_ = Peer::connect(queue.number(), error);
    if (peer_ != nullptr) remote_ = peer_->attach(queue.number(), kInitiator, error);
    EXPECT_EQ(error, 0);
    remote_->view.shared->busy.store(kInitiator);
  }
  StoppedInitiator(const StoppedInitiator&) = delete;
  StoppedInitiator& operator=(const StoppedInitiator&) = delete;
  ~StoppedInitiator() { remote_->view.shared->busy.store(0); }

 private:
  std::shared_ptr<Peer> peer_;
  std::unique_ptr<RemoteQp> remote_;
};

TEST(XrcHostile, OthersAreServedWhileAnotherInitiatorUsesTheQueue) {
  XrcTarget scene(4096);
  scene.memory.fill(3);
  scene.ask(IBV_WR_RDMA_READ, scene.memory.mr->rkey, 16);  // finds the queue
  ASSERT_EQ(hear<TcpAnswer>(scene.connection).kind, TcpAnswer::kPayload);
  std::array<std::byte, 16> bytes{};
  ASSERT_EQ(recv(scene.connection.get(), bytes.data(), bytes.size(), MSG_WAITALL), 16);
  {
    const StoppedInitiator stopped(scene.queue);
    scene.ask(IBV_WR_RDMA_READ, scene.memory.mr->rkey, 16);
    expect_others_served(scene);
  }
  const auto answer = hear<TcpAnswer>(scene.connection);
  EXPECT_EQ(answer.kind, TcpAnswer::kPayload);
  EXPECT_EQ(answer.length, 16U);
}

/// The first part waits for the turn, and then the rest.
TEST(XrcHostile, ALongReadWaitsForItsTurn) {
  constexpr std::uint32_t kLong = 256 * 1024;
  XrcTarget scene(kLong);
  scene.memory.fill(3);
  {
    const StoppedInitiator stopped(scene.queue);
    scene.ask(IBV_WR_RDMA_READ, scene.memory.mr->rkey, kLong);
    expect_others_served(scene);
  }
  ASSERT_EQ(hear<TcpAnswer>(scene.connection).kind, TcpAnswer::kPayload);
  std::vector<std::byte> bytes(kLong);
  ASSERT_EQ(recv(scene.connection.get(), bytes.data(), kLong, MSG_WAITALL), static_cast<ssize_t>(kLong));
  EXPECT_EQ(std::memcmp(bytes.data(), scene.memory.data, kLong), 0);
}

TEST(XrcHostile, OthersAreServedWhileTheQueuesProcessIsStopped) {
  const UniqueFd file = nameless_file();
  Child owner([&file](Line line) {
    Node node;
    const Domain domain(node, file.get());
    Queue queue(node, domain);
    EXPECT_EQ(queue.post(5, {}), 0);
    line.send({.qpn = queue.number()});
    EXPECT_EQ(queue.next().wr_id, 5U);
    line.send({});
  });
  const std::uint32_t queue = owner.line().receive().qpn;
  XrcTarget scene(4096, file.get());
  owner.stop();
  TcpRequest request;
  request.opcode = static_cast<std::uint8_t>(IBV_WR_SEND);
  request.queue = queue;
  say(scene.connection, request);
  expect_others_served(scene);
  owner.resume();
  EXPECT_EQ(hear<TcpAnswer>(scene.connection).kind, TcpAnswer::kDone);
  (void)owner.line().receive();
}

}  // namespace
}  // namespace rdmacomm::softdev::test
