// Datagrams to multicast groups from other hosts, which the test plays by UDP sockets; and those to other hosts.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "softdev/host/multicast.h"
#include "softdev/queues/datagrams.h"
#include "softdev/tcp/datagram_format.h"
#include "softdev/tcp/tcp_raw_client.h"
#include "softdev/verbs/soft_verbs.h"
#include "support/own_network.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr ibv_gid kGroup = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};
constexpr ibv_gid kOwnAddress = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1}};
constexpr std::uint32_t kBytes = 64;

/// A network whose only interface besides loopback has kOwnAddress.
struct GroupNetwork {
  rdmacomm::testing::OwnNetwork network;

  GroupNetwork() {
    if (!network.why_not().empty()) return;
    network.ip("link set lo up");
    network.add_interface("one");
    network.ip("address add 10.9.0.1/24 dev one");
  }
};

/// A UDP socket that sends to a group from `address`, or receives from it. Its datagrams come back to this host.
UniqueFd group_socket(std::uint16_t port, const ibv_gid& address = kOwnAddress) {
  UniqueFd made(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  verbs::SocketAddress from = verbs::socket_address_of(port == 0 ? address : kGroup, port, 0);
  EXPECT_EQ(bind(made.get(), from.get(), from.length), 0);
  ip_mreqn by{};
  std::memcpy(&by.imr_multiaddr, kGroup.raw + 12, 4);
  std::memcpy(&by.imr_address, address.raw + 12, 4);
  EXPECT_EQ(setsockopt(made.get(), IPPROTO_IP, port == 0 ? IP_MULTICAST_IF : IP_ADD_MEMBERSHIP, &by, sizeof(by)), 0);
  prepare(made);
  return made;
}

/// A member of the group with some receives.
struct Member {
  WireVariable variable{"auto"};
  Node node;
  Memory memory{node, 64 * 256};
  Qp qp{node, kUd};

  explicit Member(const DeviceIdentity& identity = {.name = "soft0"}) : node(identity) {
    qp.get_ready();
    EXPECT_EQ(attach_mcast(qp.qp.get(), &kGroup, 0), 0);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(qp.post_recv(memory.slice(i * 256, 40 + kBytes), i), 0);
  }
  ~Member() { EXPECT_EQ(detach_mcast(qp.qp.get(), &kGroup, 0), 0); }
};

GroupDatagram valid_datagram() {
  GroupDatagram head;
  head.initiator_qpn = 0x4321;
  head.request.opcode = IBV_WR_SEND;
  head.request.length = kBytes;
  head.request.key = kUd.qkey;
  head.address.source = kOwnAddress;
  head.address.target = kGroup;
  head.address.is_global = 1;
  head.address.is_routable = 1;
  head.address.hop_limit = 5;
  return head;
}

void send_to_group(const UniqueFd& socket, const GroupDatagram& head, std::size_t bytes = kBytes) {
  std::vector<std::byte> whole(sizeof(head) + bytes, std::byte{0x5a});
  std::memcpy(whole.data(), &head, sizeof(head));
  verbs::SocketAddress to = verbs::socket_address_of(kGroup, kGroupPort, 0);
  ASSERT_EQ(sendto(socket.get(), whole.data(), whole.size(), 0, to.get(), to.length),
            static_cast<ssize_t>(whole.size()));
}

TEST(Groups, ADatagramOfAnotherHostArrivesWithItsSender) {
  const GroupNetwork network;
  if (!network.network.why_not().empty()) GTEST_SKIP() << network.network.why_not();
  Member member;
  const UniqueFd other = group_socket(0);
  send_to_group(other, valid_datagram());
  const ibv_wc wc = member.qp.next();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.byte_len, 40 + kBytes);
  EXPECT_EQ(wc.src_qp, 0x4321U);
  EXPECT_EQ(member.memory.data[40], std::byte{0x5a});
}

TEST(Groups, ADeviceThatBelongsToAnInterfaceJoinsThereOnly) {
  const GroupNetwork network;
  if (!network.network.why_not().empty()) GTEST_SKIP() << network.network.why_not();
  network.network.add_interface("two");
  network.network.ip("address add 10.9.1.1/24 dev two");
  Member at_one({.name = "soft0", .interface = "one"});
  Member at_two({.name = "soft1", .index = 1, .interface = "two"});
  ibv_gid address_of_two = kOwnAddress;
  address_of_two.raw[14] = 1;
  GroupDatagram head = valid_datagram();
  head.initiator_qpn = 1;
  send_to_group(group_socket(0), head);
  EXPECT_EQ(at_one.qp.next().src_qp, 1U);
  head.initiator_qpn = 2;
  head.address.source = address_of_two;
  send_to_group(group_socket(0, address_of_two), head);
  EXPECT_EQ(at_two.qp.next().src_qp, 2U) << "the first that arrived there";
  EXPECT_TRUE(at_one.qp.poll().empty());
}

TEST(Groups, WrongDatagramsAreIgnored) {
  const GroupNetwork network;
  if (!network.network.why_not().empty()) GTEST_SKIP() << network.network.why_not();
  Member member;
  const UniqueFd other = group_socket(0);
  const auto with = [&other](const std::function<void(GroupDatagram&)>& change, std::size_t bytes = kBytes) {
    GroupDatagram head = valid_datagram();
    change(head);
    send_to_group(other, head, bytes);
  };
  with([](auto& d) { d.magic ^= 1; });
  with([](auto& d) { ++d.version; });
  with([](auto& d) { d.initiator_qpn = 1U << 24; });
  with([](auto& d) { d.request.opcode = IBV_WR_RDMA_WRITE; });
  with([](auto& d) { d.request.opcode = 0xff; });
  with([](auto& d) { d.request.length = kBytes + 1; });
  with([](auto& d) { d.request.length = 0xffffffff; });
  with([](auto& d) { d.request.key ^= 1; });
  with([](auto& d) { d.request.key |= 1U << 31; });  // "your own Q_Key"
  with([](auto& d) { d.address.source.raw[15] = 77; });
  with([](auto& d) { d.address.target.raw[15] = 77; });
  with([](auto& d) { d.address.is_global = 0; });
  with([](auto& d) { d.address.source_lid = 1; });
  with([](auto& d) { d.request.length = 4097; }, 4097);
  with([](auto& d) { d.request.length = 60'000; }, 60'000);
  verbs::SocketAddress to = verbs::socket_address_of(kGroup, kGroupPort, 0);
  for (const std::size_t length : {0, 1, 111}) {
    const std::array<std::byte, 111> zeroes{};
    ASSERT_EQ(sendto(other.get(), zeroes.data(), length, 0, to.get(), to.length), static_cast<ssize_t>(length));
  }
  GroupDatagram last = valid_datagram();
  last.initiator_qpn = 1;
  send_to_group(other, last);
  EXPECT_EQ(member.qp.next().src_qp, 1U) << "the first that arrived";
}

TEST(Groups, MoreDatagramsThanReceivesAreLost) {
  const GroupNetwork network;
  if (!network.network.why_not().empty()) GTEST_SKIP() << network.network.why_not();
  Member member;
  const UniqueFd other = group_socket(0);
  for (std::uint32_t sender = 1; sender <= 200; ++sender) {
    GroupDatagram head = valid_datagram();
    head.initiator_qpn = sender;
    send_to_group(other, head);
  }
  for (std::uint32_t sender = 1; sender <= 8; ++sender) EXPECT_EQ(member.qp.next().src_qp, sender);
}

TEST(Groups, ADatagramGoesToOtherHostsOnce) {
  const GroupNetwork network;
  if (!network.network.why_not().empty()) GTEST_SKIP() << network.network.why_not();
  Member member;
  std::uint8_t index = 0;
  while (!verbs::equal(gid_at(member.node, index), kOwnAddress)) ++index;
  const Address to_group(member.node, kGroup, index);
  // The kernel shows this host's packets to a packet socket, but not to members here.
  const UniqueFd packets(::socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(0x0003)));
  ASSERT_TRUE(packets);
  prepare(packets);
  ASSERT_EQ(member.qp.post(datagram(9, to_group, kMulticastQpn), member.memory.slice(4096, kBytes)), 0);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(member.qp.next().status, IBV_WC_SUCCESS);  // sent, and received here
  int seen = 0;
  std::array<std::byte, 2048> packet{};
  while (seen == 0) {
    const ssize_t got = recv(packets.get(), packet.data(), packet.size(), 0);
    ASSERT_GT(got, 0);
    constexpr std::size_t kIpAndUdp = 28;
    GroupDatagram head;
    if (got != static_cast<ssize_t>(kIpAndUdp + sizeof(head) + kBytes)) continue;
    std::memcpy(static_cast<void*>(&head), packet.data() + kIpAndUdp, sizeof(head));
    EXPECT_EQ(head.magic, kTcpMagic);
    EXPECT_EQ(head.initiator_qpn, member.qp.number());
    EXPECT_TRUE(verbs::equal(head.address.target, kGroup));
    ++seen;
  }
  EXPECT_TRUE(member.qp.poll().empty()) << "not once more from the network";
}

TEST(Groups, AreLeft) {
  const GroupNetwork network;
  if (!network.network.why_not().empty()) GTEST_SKIP() << network.network.why_not();
  Member member;
  Qp stays{member.node, kUd};
  stays.get_ready();
  ASSERT_EQ(attach_mcast(stays.qp.get(), &kGroup, 0), 0);
  ASSERT_EQ(stays.post_recv(member.memory.slice(4096, 40 + kBytes), 1), 0);
  ASSERT_EQ(detach_mcast(member.qp.qp.get(), &kGroup, 0), 0);
  send_to_group(group_socket(0), valid_datagram());
  EXPECT_EQ(stays.next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(member.qp.poll().empty());
  ASSERT_EQ(detach_mcast(stays.qp.get(), &kGroup, 0), 0);
  ASSERT_EQ(attach_mcast(member.qp.qp.get(), &kGroup, 0), 0);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
