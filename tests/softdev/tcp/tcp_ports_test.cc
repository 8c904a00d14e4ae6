// The TCP ports that belong to queue pair numbers, and the processes that hold them.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

#include "softdev/local/two_processes.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/tcp/tcp_addresses.h"
#include "softdev/tcp/tcp_raw_client.h"
#include "softdev/verbs/raw_verbs.h"
#include "support/own_network.h"

namespace rdmacomm::softdev::test {
namespace {

using rdmacomm::testing::EnvironmentVariable;
using rdmacomm::testing::OwnNetwork;

constexpr QpSettings kDatagrams{.type = IBV_QPT_UD};

/// Binds a socket to the port of `qpn`, on all addresses or only on the loopback interface, with SO_REUSEADDR. On
/// failure the result is not valid, and errno is set.
UniqueFd squat(std::uint32_t qpn, bool everywhere = true) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = loopback_port_of(qpn);
  if (everywhere) address.sin_addr.s_addr = htonl(INADDR_ANY);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return UniqueFd();
  return socket;
}

void expect_a_message_arrives(Pair& pair) {
  const Memory from(pair.a_node);
  const Memory to(pair.b_node);
  ASSERT_EQ(pair.b.post_recv(to.slice(0, 64), 1), 0);
  ASSERT_EQ(pair.a.post(send_request(2), from.slice(0, 64)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
}

/// In a network of its own, the test occupies ports, and may listen on them.
class TcpSquatters : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!network.why_not().empty()) GTEST_SKIP() << network.why_not();
    network.ip("link set lo up");
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit raised{kQpnBlocks + 500, before.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) != 0) GTEST_SKIP() << "no leave for " << raised.rlim_cur << " descriptors";
  }
  void TearDown() override { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0); }
  /// Takes each `step`th port, and listens on each `listens`th of these.
  void take_each(std::uint32_t step, std::size_t listens) {
    for (std::uint32_t block = 1; block < kQpnBlocks; block += step) {
      squatters.push_back(squat(block << kQpnBlockBits));
      ASSERT_TRUE(squatters.back()) << block;
      if (squatters.size() % listens != 0) continue;
      ASSERT_EQ(listen(squatters.back().get(), 1), 0);
    }
  }
  OwnNetwork network;
  rlimit before{};
  std::vector<UniqueFd> squatters;
};

TEST_F(TcpSquatters, NumbersWhosePortIsInUseAreSkipped) {
  take_each(2, 2);
  const WireVariable variable("tcp");
  for (int i = 0; i < 8; ++i) {  // random: all occupied once in 65,536 runs
    Pair pair;
    expect_a_message_arrives(pair);
  }
}

TEST_F(TcpSquatters, TakingAllPortsDoesNotPreventSharedMemory) {
  take_each(1, 1);
  {
    Pair pair;
    expect_a_message_arrives(pair);
  }
  const WireVariable variable("tcp");
  Node node;
  Qp qp(node);
  ASSERT_EQ(qp.to_init(), 0);
  EXPECT_EQ(qp.to_rtr(0x123456), EADDRINUSE);
}

TEST(TcpPorts, ANumbersPortIsReservedFromTheBeginning) {
  Node node;
  const Qp qp(node);
  for (const bool everywhere : {false, true}) {
    EXPECT_FALSE(squat(qp.number(), everywhere));
    EXPECT_EQ(errno, EADDRINUSE);
  }
  EXPECT_FALSE(connect_raw(qp.number())) << "nobody listens there yet";
}

TEST(TcpPorts, ANumbersPortStaysReservedWhileItListens) {
  const WireVariable variable("tcp");
  Node node;
  Qp qp(node, {.type = IBV_QPT_UD});
  qp.get_ready();
  EXPECT_TRUE(connect_raw(qp.number()));
  for (const bool everywhere : {false, true}) {
    EXPECT_FALSE(squat(qp.number(), everywhere));
    EXPECT_EQ(errno, EADDRINUSE);
  }
}

TEST(TcpPorts, AreReleasedWithTheDevice) {
  std::uint32_t number = 0;
  {
    Node node;
    const Qp qp(node);
    number = qp.number();
  }
  EXPECT_TRUE(squat(number));
}

TEST(TcpPorts, AreNotUsedWithMemoryAlone) {
  const WireVariable variable("memory");
  bool is_free = false;
  // another process's connections may just have ended there
  for (int attempt = 0; !is_free && attempt < 20; ++attempt) {
    Node node;
    const Qp qp(node);
    is_free = squat(qp.number()).valid();
  }
  EXPECT_TRUE(is_free);
}

/// Whether a connection to this address succeeds. Waits for a later connection to the loopback interface: connections
/// of this host to itself succeed or fail during connect().
bool is_reached_at(std::uint32_t qpn, const char* text) {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address = loopback_port_of(qpn);
  EXPECT_EQ(inet_pton(AF_INET, text, &address.sin_addr), 1);
  (void)connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  EXPECT_TRUE(connect_raw(qpn));
  pollfd connected{socket.get(), POLLOUT, 0};
  return poll(&connected, 1, 0) == 1 && (connected.revents & (POLLERR | POLLHUP)) == 0;
}

struct TwoAddresses : ::testing::Test {
  void SetUp() override {
    if (!network.why_not().empty()) GTEST_SKIP() << network.why_not();
    network.ip("link set lo up");
    network.ip("address add 10.9.1.1/32 dev lo");
  }
  OwnNetwork network;
};

TEST_F(TwoAddresses, AConnectedQueuePairIsReachedAtItsOwnAddressOnly) {
  const WireVariable variable("tcp");  // from 127.0.0.1
  Pair pair;
  EXPECT_FALSE(is_reached_at(pair.a.number(), "10.9.1.1"));
  Qp datagrams(pair.a_node, kDatagrams);
  datagrams.get_ready();
  EXPECT_TRUE(is_reached_at(pair.a.number(), "10.9.1.1")) << "senders of datagrams may be anywhere";
}

/// On some systems only root may filter connections. There, connections to other addresses are accepted and closed at
/// once.
TEST(TcpPorts, AUserWithoutPrivilegesIsReachedAtItsOwnAddressOnly) {
  constexpr uid_t kNobody = 65534;
  Child user([](Line) {
    const bool is_root = geteuid() == 0;
    ASSERT_EQ(is_root ? setresgid(kNobody, kNobody, kNobody) + setresuid(kNobody, kNobody, kNobody) : 0, 0);
    const WireVariable variable("tcp");  // from 127.0.0.1
    Pair pair;
    const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    sockaddr_in address = loopback_port_of(pair.a.number());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
    (void)connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    expect_a_message_arrives(pair);
    pollfd connected{socket.get(), POLLOUT, 0};
    if (poll(&connected, 1, 0) == 0) return;  // dropped
    pollfd over{socket.get(), POLLRDHUP, 0};
    EXPECT_EQ(poll(&over, 1, 20'000), 1);
    EXPECT_TRUE(is_closed(socket));
  });
  EXPECT_EQ(user.wait(), 0);
}

TEST_F(TwoAddresses, AProcessIsReachedAtTheAddressesThatAreListed) {
  const EnvironmentVariable listen(kListenVariable, "127.0.0.1,::1");
  Node node;
  Qp qp(node, kDatagrams);
  qp.get_ready();
  EXPECT_FALSE(is_reached_at(qp.number(), "10.9.1.1"));
}

TEST_F(TwoAddresses, AQueuePairIsNotConnectedFromAnotherAddress) {
  const WireVariable variable("tcp");
  const EnvironmentVariable listen(kListenVariable, "10.9.1.1");
  Node node;
  Qp qp(node);
  ASSERT_EQ(qp.to_init(), 0);
  EXPECT_EQ(qp.to_rtr(0x123456), EADDRNOTAVAIL);
}

TEST(TcpPorts, AnInvalidListOfAddressesPreventsOpening) {
  for (const char* const wrong : {"localhost", "10.0.0.1,", ",", "10.0.0.1 ", "10.0.0.0/8"}) {
    const EnvironmentVariable listen(kListenVariable, wrong);
    const verbs::DeviceList list(api());
    EXPECT_EQ(api().open_device(list[0]), nullptr) << wrong;
    EXPECT_EQ(errno, EINVAL);
  }
}

TEST(TcpAddresses, AnIpv6AddressIsComparedWhole) {
  const UniqueFd listener(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  socklen_t length = sizeof(any);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<const sockaddr*>(&any), length), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&any), &length), 0);
  ASSERT_EQ(listen(listener.get(), 4), 0);
  any.sin6_addr = in6addr_loopback;
  for (const bool is_listed : {true, false}) {
    TcpAddresses addresses;
    ASSERT_TRUE(TcpAddresses::read(is_listed ? "10.0.0.1,::1" : "10.0.0.1,::2,1::1,0:0:1::1,127.0.0.1", addresses));
    ASSERT_EQ(addresses.apply_to(listener.get()), 0);
    const UniqueFd socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)connect(socket.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any));
    pollfd connected{socket.get(), POLLOUT, 0};
    EXPECT_EQ(poll(&connected, 1, 0), is_listed ? 1 : 0);
  }
}

/// The thread that connects a queue pair may be in another network namespace than the thread that created it.
TEST(TcpPorts, AQueuePairIsReachedWhereItIsConnected) {
  const WireVariable variable("tcp");
  Node node;
  Qp qp(node, {.type = IBV_QPT_UD});
  const OwnNetwork network;
  if (!network.why_not().empty()) GTEST_SKIP() << network.why_not();
  network.ip("link set lo up");
  qp.get_ready();
  EXPECT_TRUE(connect_raw(qp.number()));
}

}  // namespace
}  // namespace rdmacomm::softdev::test
