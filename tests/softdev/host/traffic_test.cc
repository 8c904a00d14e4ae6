// The counts of a port: messages that queue pairs have sent and received, in all processes of the host. Each test has a
// network of its own, so that other programs count nothing there meanwhile.
#include "softdev/host/traffic.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/sanitizer.h"
#include "softdev/host/gid_table.h"
#include "softdev/host/traffic_file.h"
#include "softdev/queues/datagrams.h"
#include "softdev/verbs/raw_verbs.h"
#include "support/forked_child.h"
#include "support/own_network.h"

namespace rdmacomm::softdev::test {
namespace {

using rdmacomm::testing::ForkedChild;
using rdmacomm::testing::OwnNetwork;

TEST(Packets, AMessageHasAtLeastOne) {
  EXPECT_EQ(packets_of(0, 1024), 1U);
  EXPECT_EQ(packets_of(1, 1024), 1U);
  EXPECT_EQ(packets_of(1024, 1024), 1U);
  EXPECT_EQ(packets_of(1025, 1024), 2U);
  EXPECT_EQ(packets_of(UINT32_MAX, 256), std::uint64_t{1} << 24);
}

class TrafficCounts : public ::testing::Test {
 protected:
  void SetUp() override {
    network.emplace();
    if (!network->why_not().empty()) GTEST_SKIP() << network->why_not();
    network->ip("link set lo up");
    before_ = now();
  }
  /// The counts of the first device since the start of the test. The system gives a network the number of an earlier one,
  /// so there may be counts of earlier tests.
  [[nodiscard]] std::uint64_t count(Count kind) const {
    const auto at = static_cast<std::size_t>(kind);
    return now().devices.at(0)[at] - before_.devices.at(0)[at];
  }
  [[nodiscard]] std::uint64_t link_downed() const { return now().link_downed - before_.link_downed; }
  static HostTraffic now() {
    HostTraffic traffic{.devices = std::vector<Counts>(DeviceIdentity::kMaxDevices)};
    const int error = read_traffic(device_guid(0), traffic);
    EXPECT_TRUE(error == 0 || error == ENOENT);
    return traffic;
  }
  /// The path of a file beside the host's own one.
  static std::string file_of_process(const std::string& name) {
    char host[17];
    std::snprintf(host, sizeof(host), "%016llx", static_cast<unsigned long long>(device_guid(0)));
    return "/dev/shm/rdmacomm-counts-" + std::to_string(geteuid()) + "/" + host + name;
  }

  std::optional<OwnNetwork> network;

 private:
  HostTraffic before_;
};

struct Scene {
  Pair pair;
  Memory local{pair.a_node, 65536};
  Memory remote{pair.b_node, 65536};

  explicit Scene(const QpSettings& settings = {}) : pair(settings, settings) {}
  void run(ibv_wr_opcode opcode, std::size_t bytes, ibv_wc_status expected = IBV_WC_SUCCESS) {
    const ibv_send_wr wr = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD
                               ? atomic_request(opcode, 1, remote.address(), remote.mr->rkey, 1)
                               : rdma_request(opcode, 1, remote.address(), remote.mr->rkey);
    ASSERT_EQ(pair.a.post(wr, local.slice(0, bytes)), 0);
    EXPECT_EQ(pair.a.next().status, expected);
  }
};

TEST_F(TrafficCounts, AWriteIsSentInPacketsOfThePathMtu) {
  Scene scene({.mtu = IBV_MTU_1024});
  scene.run(IBV_WR_RDMA_WRITE, 8);
  scene.run(IBV_WR_RDMA_WRITE, 2500);
  for (const Count bytes : {Count::kSentBytes, Count::kReceivedBytes}) EXPECT_EQ(count(bytes), 2508U);
  for (const Count packets : {Count::kSentPackets, Count::kReceivedPackets}) EXPECT_EQ(count(packets), 4U);
  for (const Count none : {Count::kSends, Count::kReceives, Count::kDiscarded}) EXPECT_EQ(count(none), 0U);
}

TEST_F(TrafficCounts, MessagesAreSendsAndReceives) {
  Scene scene;
  for (int i = 0; i < 3; ++i) ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(0, 1000), 1), 0);
  scene.run(IBV_WR_SEND, 100);
  scene.run(IBV_WR_SEND_WITH_IMM, 200);
  scene.run(IBV_WR_RDMA_WRITE_WITH_IMM, 300);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(scene.pair.b.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(count(Count::kSends), 2U);
  EXPECT_EQ(count(Count::kReceives), 3U);
  EXPECT_EQ(count(Count::kReceivedBytes), 600U);
  EXPECT_EQ(count(Count::kSentPackets), 3U);
}

TEST_F(TrafficCounts, TheTargetSendsTheDataOfReadsAndAtomics) {
  Scene scene;
  scene.run(IBV_WR_RDMA_READ, 10'000);
  scene.run(IBV_WR_ATOMIC_FETCH_AND_ADD, 8);
  for (const Count bytes : {Count::kSentBytes, Count::kReceivedBytes}) EXPECT_EQ(count(bytes), 10'008U);
  // Two requests and 3 + 1 answers.
  for (const Count packets : {Count::kSentPackets, Count::kReceivedPackets}) EXPECT_EQ(count(packets), 6U);
}

TEST_F(TrafficCounts, ALostMessageIsSentButNotReceived) {
  Scene scene({.type = IBV_QPT_UC});
  scene.run(IBV_WR_SEND, 100);
  // Over TCP, the target discards it later than the sender completes it.
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(0, 1000), 1), 0);
  scene.run(IBV_WR_SEND, 10);
  EXPECT_EQ(scene.pair.b.next().byte_len, 10U);
  EXPECT_EQ(count(Count::kSentBytes), 110U);
  EXPECT_EQ(count(Count::kReceivedBytes), 10U);
  EXPECT_EQ(count(Count::kDiscarded), 1U);
}

TEST_F(TrafficCounts, ARefusedRequestIsNoTraffic) {
  Scene scene;
  ibv_send_wr wrong = rdma_request(IBV_WR_RDMA_WRITE, 1, scene.remote.address(), scene.remote.mr->rkey + 256);
  ASSERT_EQ(scene.pair.a.post(wrong, scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
  Scene other;
  other.run(IBV_WR_RDMA_WRITE, 8);
  EXPECT_EQ(count(Count::kSentPackets), 1U);
}

TEST_F(TrafficCounts, AMissingReceiveIsCountedAtBothEnds) {
  Scene scene({.rnr_retry = 1});
  scene.run(IBV_WR_SEND, 100, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(count(Count::kNotReadyReceived), 1U);
  EXPECT_EQ(count(Count::kNotReadySent), 1U);
  EXPECT_EQ(count(Count::kNotReadyExceeded), 1U);
  EXPECT_EQ(count(Count::kSentPackets), 0U);
}

TEST_F(TrafficCounts, AMissingTargetIsCounted) {
  Scene scene({.timeout = 1});
  scene.pair.b.qp.reset();
  scene.run(IBV_WR_RDMA_WRITE, 8, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(count(Count::kRetriesExceeded), 1U);
  EXPECT_GE(count(Count::kRetries), 1U);
}

TEST_F(TrafficCounts, DatagramsAreCountedWithoutTheirHeaders) {
  Node node;
  Qp from(node, kUd);
  Qp to(node, kUd);
  from.get_ready();
  to.get_ready();
  Memory memory(node);
  const Address address(node);
  ASSERT_EQ(to.post_recv(memory.slice(0, 2000), 1), 0);
  ASSERT_EQ(from.post(datagram(1, address, to.number()), memory.slice(2048, 1000)), 0);
  EXPECT_EQ(from.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(to.next().byte_len, 1040U);
  EXPECT_EQ(count(Count::kSentBytes), 1000U);
  EXPECT_EQ(count(Count::kReceivedBytes), 1000U);
  EXPECT_EQ(count(Count::kReceivedPackets), 1U);
}

TEST_F(TrafficCounts, CountsStayWhenTheQueuePairsAndTheDeviceHaveEnded) {
  for (int i = 1; i <= 3; ++i) {
    Scene scene;
    scene.run(IBV_WR_RDMA_WRITE, 8);
    EXPECT_EQ(count(Count::kSentPackets), static_cast<std::uint64_t>(i));
  }
  EXPECT_EQ(count(Count::kSentBytes), 24U);
}

TEST_F(TrafficCounts, AKilledProcessIsCounted) {
  ForkedChild child([](int line) {
    Scene scene;
    scene.run(IBV_WR_RDMA_WRITE, 16);
    (void)!write(line, "x", 1);
    pause();
  });
  char done = 0;
  ASSERT_EQ(read(child.line(), &done, 1), 1);
  EXPECT_EQ(count(Count::kSentBytes), 16U) << "while it lives";
  child.kill();
  EXPECT_EQ(count(Count::kSentBytes), 16U);
  EXPECT_EQ(count(Count::kSentBytes), 16U) << "not twice";
}

TEST_F(TrafficCounts, AChildOfForkCountsInAFileOfItsOwn) {
#ifdef RDMACOMM_THREAD_SANITIZER
  GTEST_SKIP() << "the thread sanitizer ends a child of several threads when it starts a thread";
#endif
  Scene scene;
  scene.run(IBV_WR_RDMA_WRITE, 8);
  ForkedChild child([](int) {
    Scene own;
    own.run(IBV_WR_RDMA_WRITE, 16);
  });
  EXPECT_EQ(child.wait(), 0);
  scene.run(IBV_WR_RDMA_WRITE, 8);
  EXPECT_EQ(count(Count::kSentBytes), 32U);
}

TEST_F(TrafficCounts, ManyQueuePairsNeedMoreThanOnePartOfTheFile) {
  constexpr std::uint64_t kPairs = 200;
  Node a_node;
  Node b_node;
  Memory local(a_node);
  Memory remote(b_node);
  std::vector<std::unique_ptr<Qp>> all;
  for (std::uint64_t i = 0; i < kPairs; ++i) {
    all.push_back(std::make_unique<Qp>(a_node));
    all.push_back(std::make_unique<Qp>(b_node));
    Qp& from = *all[all.size() - 2];
    from.connect_to(all.back()->number());
    all.back()->connect_to(from.number());
    ASSERT_EQ(from.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey), local.slice(0, 8)), 0);
    EXPECT_EQ(from.next().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(count(Count::kSentPackets), kPairs);
}

TEST_F(TrafficCounts, AProgramThatClosesAllDescriptorsKeepsItsOwnFiles) {
  ForkedChild child([](int) {
    { const Scene scene; }
    for (int fd = 3; fd < 1024; ++fd) close(fd);
    const int other = open("/proc/self/exe", O_RDONLY);
    std::vector<int> files;  // they get the numbers that the device had
    for (int i = 0; i < 64; ++i) {
      files.push_back(memfd_create("own", 0));
      EXPECT_EQ(ftruncate(files.back(), 10), 0);
    }
    close(other);
    TrafficFile* const counts = TrafficFile::of_process(device_guid(0));
    ASSERT_NE(counts, nullptr);
    for (int i = 0; i < 1000; ++i) EXPECT_NE(counts->take(0, 0), nullptr);
    for (const int file : files) {
      struct stat found {};
      EXPECT_EQ(fstat(file, &found), 0);
      EXPECT_EQ(found.st_size, 10);
    }
  });
  EXPECT_EQ(child.wait(), 0);
}

TEST_F(TrafficCounts, InvalidFilesAreIgnored) {
  Scene scene;
  scene.run(IBV_WR_RDMA_WRITE, 8);
  std::string content(100'000, '\xff');
  std::ofstream(file_of_process("-1-0")) << content;            // no magic
  std::ofstream(file_of_process("-1-1")) << content.substr(8);  // too short for the magic and the cells it names
  std::ifstream own(file_of_process("-" + std::to_string(getpid()) + "-0"));
  std::string header(16, '\0');
  ASSERT_TRUE(own.read(header.data(), 8));
  content.replace(0, 8, header, 0, 8);  // the magic, more cells than the file has, and devices that do not exist
  std::fill(content.begin() + 4096, content.begin() + 4096 + 8192, '\0');
  std::ofstream(file_of_process("-1-2")) << content;
  std::ofstream(file_of_process("-1-3")) << content.substr(0, 5000);
  EXPECT_EQ(count(Count::kSentPackets), 1U);
  EXPECT_EQ(access(file_of_process("-1-2").c_str(), F_OK), -1) << "nobody holds its lock";
  std::ofstream(file_of_process("")) << "short";
  EXPECT_GE(now().devices[0][static_cast<std::size_t>(Count::kSentPackets)], 1U) << "of this process";
}

TEST_F(TrafficCounts, ThePortGoesDownOnceForAllContexts) {
  const Node one;
  const Node two;
  const auto events = [](const Node& node) {
    ibv_async_event event{};
    EXPECT_TRUE(readable(node.context->async_fd, 20'000));
    EXPECT_EQ(api().get_async_event(node.context.get(), &event), 0);
    return event.event_type;
  };
  const auto next = [&events](const Node& node, ibv_event_type wanted) {
    while (events(node) != wanted) {
    }
  };
  for (std::uint64_t times = 1; times <= 2; ++times) {
    network->ip("link set lo down");
    for (const Node* node : {&one, &two}) next(*node, IBV_EVENT_PORT_ERR);
    EXPECT_EQ(link_downed(), times);
    network->ip("link set lo up");
    for (const Node* node : {&one, &two}) next(*node, IBV_EVENT_PORT_ACTIVE);
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
