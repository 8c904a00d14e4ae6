// Devices that belong to network interfaces: their GIDs, their ports, and the traffic while an interface is down. The
// tests make their own networks.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <net/if.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rdmacomm/softdev.h"
#include "softdev/host/gid_table.h"
#include "softdev/host/traffic_file.h"
#include "softdev/queues/datagrams.h"
#include "softdev/verbs/raw_verbs.h"
#include "support/environment_variable.h"
#include "support/own_network.h"

namespace rdmacomm::softdev::test {
namespace {

using rdmacomm::testing::EnvironmentVariable;
using rdmacomm::testing::OwnNetwork;
using EventTypes = std::vector<ibv_event_type>;

constexpr std::uint8_t kFirstIpv4 = 3;  // its RoCE v2 entry

DeviceIdentity device_of(const std::string& interface, unsigned index = 0) {
  return {.name = default_name(index), .index = index, .interface = interface};
}

EventTypes taken_events(const Node& node) {
  ibv_context& context = *node.context.get();
  fcntl(context.async_fd, F_SETFL, fcntl(context.async_fd, F_GETFL) | O_NONBLOCK);
  EventTypes found;
  ibv_async_event event{};
  while (api().get_async_event(&context, &event) == 0) {
    api().ack_async_event(&event);
    found.push_back(event.event_type);
  }
  return found;
}

/// Reads events until this one, 20 s at most, because the kernel reports carriers asynchronously. Then the queue pairs
/// follow the state of the port. Returns the other events.
EventTypes await(const Node& node, ibv_event_type wanted) {
  EventTypes others;
  for (;;) {
    EventTypes found = taken_events(node);
    const bool is_found = std::erase(found, wanted) != 0;
    others.insert(others.end(), found.begin(), found.end());
    if (is_found) return others;
    if (!readable(node.context->async_fd, 20'000)) {
      ADD_FAILURE() << "no event " << wanted;
      return others;
    }
  }
}

ibv_port_state state_of_port(const Node& node) {
  ibv_port_attr attributes{};
  EXPECT_EQ(api().query_port(node.context.get(), 1, &attributes), 0);
  return attributes.state;
}

/// The RoCE v2 entries.
std::vector<std::string> gids_of(const Node& node) {
  std::vector<std::string> texts;
  ibv_gid_entry entry{};
  for (std::uint32_t index = 1; api().query_gid_entry(node.context.get(), 1, index, &entry) == 0; index += 2) {
    char text[INET6_ADDRSTRLEN] = {};
    inet_ntop(AF_INET6, entry.gid.raw, text, sizeof(text));
    texts.emplace_back(text);
  }
  return texts;
}

int move_to_rtr(Qp& own, const ibv_gid& target_gid, std::uint32_t target) {
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_4096;
  a.dest_qp_num = target;
  a.max_dest_rd_atomic = 16;
  a.min_rnr_timer = 1;
  a.ah_attr.grh.dgid = target_gid;
  a.ah_attr.grh.sgid_index = kFirstIpv4;
  a.ah_attr.is_global = 1;
  a.ah_attr.port_num = 1;
  const int reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  return api().modify_qp(own.qp.get(), &a,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             (own.settings.type == IBV_QPT_RC ? reliable : 0));
}

void connect_rails(Qp& own, Qp& other) {
  ASSERT_EQ(own.to_init(), 0);
  ASSERT_EQ(move_to_rtr(own, gid_at(other.node, kFirstIpv4), other.number()), 0);
  ASSERT_EQ(own.to_rts(), 0);
}

/// Retries for as long as the test wants.
constexpr std::uint8_t kNoTimeout = 0;

/// Two interfaces, rail0 and rail1, with the addresses 10.9.0.1 and 10.9.1.1.
class InterfaceDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    network.emplace();
    if (!network->why_not().empty()) GTEST_SKIP() << network->why_not();
    network->disable_ipv6();
    network->add_rails();
  }
  /// Sets an interface down or up, and waits until the device has noticed it.
  void set(const Node& node, const std::string& interface, bool up) const {
    network->ip("link set " + interface + (up ? " up" : " down"));
    (void)await(node, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
  }
  std::optional<OwnNetwork> network;
};

TEST_F(InterfaceDevices, HaveTheAddressesOfTheirInterfaceOnly) {
  network->ip("address add 10.9.0.2/24 dev rail0 label rail0:1");
  const Node zero(device_of("rail0", 0));
  const Node one(device_of("rail1", 1));
  const Node loopback(device_of("lo", 2));
  const Node all;
  using ::testing::_;
  using ::testing::ElementsAre;
  EXPECT_THAT(gids_of(zero), ElementsAre(_, "::ffff:10.9.0.1", "::ffff:10.9.0.2"));
  EXPECT_THAT(gids_of(one), ElementsAre(_, "::ffff:10.9.1.1"));
  EXPECT_THAT(gids_of(loopback), ElementsAre(_, "::ffff:127.0.0.1"));
  EXPECT_EQ(gids_of(all).size(), 5U);
  // Without a link-local address, the first pair is made from the GUID.
  EXPECT_EQ(gid_at(one, 0).global.interface_id, htobe64(device_guid(1)));
}

TEST_F(InterfaceDevices, HaveTheLinkLocalAddressOfTheirInterfaceFirst) {
  network->run("echo 0 > /proc/sys/net/ipv6/conf/rail1/disable_ipv6");
  network->ip("address flush dev rail1 scope link");
  network->ip("address add fe80::9:1/64 dev rail1 nodad");
  const Node one(device_of("rail1", 1));
  EXPECT_THAT(gids_of(one), ::testing::ElementsAre("fe80::9:1", "::ffff:10.9.1.1"));
}

TEST_F(InterfaceDevices, TheirPortFollowsTheInterface) {
  const Node zero(device_of("rail0", 0));
  const Node one(device_of("rail1", 1));
  EXPECT_EQ(state_of_port(zero), IBV_PORT_ACTIVE);
  network->ip("link set rail0 down");
  EXPECT_EQ(taken_events(zero), (EventTypes{IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE}));
  EXPECT_EQ(state_of_port(zero), IBV_PORT_DOWN);
  EXPECT_EQ(gids_of(zero).size(), 1U) << "only the entry that is made from the GUID";
  EXPECT_EQ(state_of_port(one), IBV_PORT_ACTIVE);
  network->ip("link set rail0 up");
  EXPECT_EQ(await(zero, IBV_EVENT_PORT_ACTIVE), EventTypes{IBV_EVENT_GID_CHANGE})
      << "in any order: the carrier may come later";
  EXPECT_EQ(state_of_port(zero), IBV_PORT_ACTIVE);
  network->ip("address add 10.9.0.2/24 dev rail0");
  EXPECT_EQ(taken_events(zero), EventTypes{IBV_EVENT_GID_CHANGE});
  EXPECT_EQ(taken_events(one), EventTypes{});
}

TEST_F(InterfaceDevices, TheirInterfaceMayComeAndGo) {
  const Node node(device_of("later"));
  EXPECT_EQ(state_of_port(node), IBV_PORT_DOWN);
  EXPECT_EQ(gids_of(node).size(), 1U);
  network->ip("link set rail0 down");
  network->ip("link set rail0 name later");
  network->ip("link set later up");
  (void)await(node, IBV_EVENT_PORT_ACTIVE);
  EXPECT_THAT(gids_of(node), ::testing::Contains("::ffff:10.9.0.1"));
  network->ip("link set later down");
  network->ip("link set later name other up");
  (void)await(node, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(taken_events(node), EventTypes{}) << "of the interface with another name";
  EXPECT_EQ(state_of_port(node), IBV_PORT_DOWN);
  network->add_interface("later");
  (void)await(node, IBV_EVENT_PORT_ACTIVE);
  network->ip("link del later");
  (void)await(node, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(state_of_port(node), IBV_PORT_DOWN);
}

TEST_F(InterfaceDevices, EachKindOfInterfaceWorks) {
  network->add_interface("cable");
  network->ip("link add bridge0 type bridge");
  network->ip("link set cable master bridge0");
  // Not all kernels have these kinds.
  network->run("ip link add link rail0 name rail0.7 type vlan id 7 2> /dev/null || true");
  network->run(
      "if ip link add bond0 type bond 2> /dev/null; then ip link set rail1 down; ip link set rail1 master bond0; fi");
  for (const std::string name : {"bridge0", "rail0.7", "bond0"}) {
    if (name != "bridge0" && if_nametoindex(name.c_str()) == 0) continue;
    const Node node(device_of(name));
    EXPECT_EQ(state_of_port(node), IBV_PORT_DOWN) << name;
    network->ip("link set " + name + " up");
    (void)await(node, IBV_EVENT_PORT_ACTIVE);
    network->ip("address add 10.9.7.1/24 dev " + name);
    EXPECT_THAT(gids_of(node), ::testing::Contains("::ffff:10.9.7.1")) << name;
    network->ip("address del 10.9.7.1/24 dev " + name);
  }
}

/// The counts go on from those of an earlier network with the same number.
struct LinksDowned {
  std::uint64_t zero = 0;
  std::uint64_t one = 0;
  std::uint64_t others = 0;
};
LinksDowned links_downed() {
  HostTraffic traffic{.devices = std::vector<Counts>(DeviceIdentity::kMaxDevices)};
  const int error = read_traffic(device_guid(0), traffic);
  EXPECT_TRUE(error == 0 || error == ENOENT) << error;
  constexpr auto kKind = static_cast<std::size_t>(Count::kLinkDowned);
  return {traffic.devices[0][kKind], traffic.devices[1][kKind], traffic.link_downed};
}

TEST_F(InterfaceDevices, CountTheLossesOfTheirOwnLink) {
  const LinksDowned before = links_downed();
  const Node zero(device_of("rail0", 0));
  const Node one(device_of("rail1", 1));
  for (int i = 0; i < 2; ++i) {
    set(one, "rail1", false);
    set(one, "rail1", true);
  }
  set(zero, "rail0", false);
  const LinksDowned after = links_downed();
  EXPECT_EQ(after.zero, before.zero + 1);
  EXPECT_EQ(after.one, before.one + 2);
  EXPECT_EQ(after.others, before.others) << "the devices that belong to no interface";
}

/// Two queue pairs of two devices, on rail0 and rail1, that are connected as by a switch.
struct TwoRails {
  Node zero{device_of("rail0", 0)};
  Node one{device_of("rail1", 1)};
  Qp a;
  Qp b;
  Memory memory{zero};
  Memory remote{one};

  explicit TwoRails(const QpSettings& settings = {}) : a(zero, settings), b(one, settings) {
    connect_rails(a, b);
    connect_rails(b, a);
    remote.fill(7);
  }
  int write() {
    return a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey), memory.slice(0, 8));
  }
};

TEST_F(InterfaceDevices, ReachEachOther) {
  TwoRails rails;
  ASSERT_EQ(rails.b.post_recv(rails.remote.slice(0, 64), 1), 0);
  rails.memory.fill(1);
  ASSERT_EQ(rails.a.post(send_request(2), rails.memory.slice(0, 64)), 0);
  EXPECT_EQ(rails.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(rails.b.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(rails.remote.data, rails.memory.data, 64), 0);
}

TEST_F(InterfaceDevices, RequestsFailIfTheSendersInterfaceStaysDown) {
  TwoRails rails;
  Qp on_rail1(rails.one);
  Qp other_end(rails.one);
  connect_rails(on_rail1, other_end);
  connect_rails(other_end, on_rail1);
  set(rails.zero, "rail0", false);
  ASSERT_EQ(rails.write(), 0);
  EXPECT_EQ(rails.a.next().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(state_of(rails.a), IBV_QPS_ERR);
  EXPECT_EQ(state_of(rails.b), IBV_QPS_RTS);
  const auto to = rdma_request(IBV_WR_RDMA_WRITE, 1, rails.remote.address(), rails.remote.mr->rkey);
  ASSERT_EQ(on_rail1.post(to, rails.remote.slice(64, 8)), 0);
  EXPECT_EQ(on_rail1.next().status, IBV_WC_SUCCESS) << "the other rail goes on";
}

TEST_F(InterfaceDevices, RequestsFailIfTheTargetsInterfaceStaysDown) {
  TwoRails rails;
  set(rails.one, "rail1", false);
  ASSERT_EQ(rails.write(), 0);
  EXPECT_EQ(rails.a.next().status, IBV_WC_RETRY_EXC_ERR);
}

/// Posts a request of each kind while the interface of either end is down.
void expect_requests_to_wait(const std::function<void(const Node&, const char*, bool)>& set) {
  for (const bool at_sender : {true, false}) {
    SCOPED_TRACE(at_sender ? "sender" : "target");
    TwoRails rails(QpSettings{.timeout = kNoTimeout});
    const Node& node = at_sender ? rails.zero : rails.one;
    const char* const interface = at_sender ? "rail0" : "rail1";
    ASSERT_EQ(rails.write(), 0);
    EXPECT_EQ(rails.a.next().status, IBV_WC_SUCCESS);
    set(node, interface, false);
    ASSERT_EQ(rails.b.post_recv(rails.remote.slice(512, 64), 1), 0);
    ASSERT_EQ(rails.a.post(send_request(10), rails.memory.slice(0, 64)), 0);
    const auto read = rdma_request(IBV_WR_RDMA_READ, 11, rails.remote.address(64), rails.remote.mr->rkey);
    ASSERT_EQ(rails.a.post(read, rails.memory.slice(64, 8)), 0);
    const auto add = atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 12, rails.remote.address(), rails.remote.mr->rkey, 1);
    ASSERT_EQ(rails.a.post(add, rails.memory.slice(72, 8)), 0);
    for (int i = 0; i < 1000; ++i) {
      ASSERT_TRUE(rails.a.poll().empty());
      ASSERT_TRUE(rails.b.poll().empty());
    }
    set(node, interface, true);
    for (const std::uint64_t id : {10U, 11U, 12U}) {
      const ibv_wc done = rails.a.next();
      EXPECT_EQ(done.status, IBV_WC_SUCCESS);
      EXPECT_EQ(done.wr_id, id);
    }
    EXPECT_EQ(rails.b.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(rails.memory.data + 64, rails.remote.data + 64, 8), 0);
    ASSERT_EQ(rails.write(), 0);
    EXPECT_EQ(rails.a.next().status, IBV_WC_SUCCESS);
  }
}

TEST_F(InterfaceDevices, RequestsGoOnIfTheInterfaceComesUpInTime) {
  expect_requests_to_wait([this](const Node& node, const char* interface, bool up) { set(node, interface, up); });
}

/// Memory that the target's process has not shared is written in pieces, by system calls that check the target before
/// each piece.
TEST_F(InterfaceDevices, LongWritesGoOnIfTheInterfaceGoesDownMeanwhile) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;
  constexpr int kWrites = 40;
  TwoRails rails(QpSettings{.depth = 64, .timeout = kNoTimeout});
  Memory from(rails.zero, kBytes);
  const Memory to(rails.one, kBytes, kAllRemote, true);
  std::atomic<bool> is_done{false};
  std::thread writer([&] {
    for (int i = 0; i < kWrites; ++i) {
      from.fill(static_cast<unsigned>(i));
      EXPECT_EQ(rails.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, to.address(), to.mr->rkey), from.slice(0, kBytes)), 0);
      EXPECT_EQ(rails.a.next().status, IBV_WC_SUCCESS);
      EXPECT_EQ(std::memcmp(from.data, to.data, kBytes), 0);
    }
    is_done = true;
  });
  while (!is_done) {
    set(rails.one, "rail1", false);
    set(rails.one, "rail1", true);
  }
  writer.join();
}

TEST_F(InterfaceDevices, RequestsByTcpWithinTheHostGoOnToo) {
  const EnvironmentVariable variable(kTcpVariable, "tcp");
  expect_requests_to_wait([this](const Node& node, const char* interface, bool up) { set(node, interface, up); });
}

TEST_F(InterfaceDevices, RequestsByTcpWithinTheHostFailToo) {
  const EnvironmentVariable variable(kTcpVariable, "tcp");
  TwoRails rails;
  ASSERT_EQ(rails.write(), 0);
  EXPECT_EQ(rails.a.next().status, IBV_WC_SUCCESS);
  set(rails.zero, "rail0", false);
  ASSERT_EQ(rails.write(), 0);
  EXPECT_EQ(rails.a.next().status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(InterfaceDevices, UnreliableMessagesAreLostWhileAnInterfaceIsDown) {
  for (const bool at_sender : {true, false}) {
    TwoRails rails(QpSettings{.type = IBV_QPT_UC});
    const Node& node = at_sender ? rails.zero : rails.one;
    const char* const interface = at_sender ? "rail0" : "rail1";
    ASSERT_EQ(rails.b.post_recv(rails.remote.slice(0, 64), 1), 0);
    set(node, interface, false);
    ASSERT_EQ(rails.a.post(send_request(2), rails.memory.slice(0, 8)), 0);
    EXPECT_EQ(rails.a.next().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(rails.b.poll().empty());
    set(node, interface, true);
    ASSERT_EQ(rails.a.post(send_request(3), rails.memory.slice(0, 16)), 0);
    EXPECT_EQ(rails.a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(rails.b.next().byte_len, 16U) << "the first message that arrives";
  }
}

TEST_F(InterfaceDevices, DatagramsAreLostWhileAnInterfaceIsDown) {
  for (const bool at_sender : {true, false}) {
    Node zero(device_of("rail0", 0));
    Node one(device_of("rail1", 1));
    Qp a(zero, kUd);
    Qp b(one, kUd);
    const Memory memory(zero);
    const Memory remote(one);
    a.get_ready();
    b.get_ready();
    const Address address(zero, gid_at(one, kFirstIpv4), kFirstIpv4);
    const ibv_send_wr wr = datagram(1, address, b.number());
    ASSERT_EQ(b.post_recv(remote.slice(0, 128), 1), 0);
    const Node& node = at_sender ? zero : one;
    const char* const interface = at_sender ? "rail0" : "rail1";
    set(node, interface, false);
    ASSERT_EQ(a.post(wr, memory.slice(0, 8)), 0);
    EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(b.poll().empty());
    set(node, interface, true);
    ASSERT_EQ(a.post(wr, memory.slice(0, 16)), 0);
    EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(b.next().byte_len, 40U + 16U);
  }
}

/// The peer of a cable is down: the interface has its addresses, but no carrier.
TEST_F(InterfaceDevices, AConnectionThatIsMadeWithoutACarrierWorksLater) {
  network->add_interface("cable");
  network->ip("address add 10.9.2.1/24 dev cable");
  Node on_cable(device_of("cable"));
  ASSERT_EQ(state_of_port(on_cable), IBV_PORT_ACTIVE);
  network->ip("link set cable_end down");
  (void)await(on_cable, IBV_EVENT_PORT_ERR);
  Node one(device_of("rail1", 1));
  Qp a(on_cable, {.timeout = kNoTimeout});
  Qp b(one, {.timeout = kNoTimeout});
  connect_rails(a, b);
  connect_rails(b, a);
  const Memory memory(on_cable);
  const Memory remote(one);
  for (const auto& [from, to] : {std::pair(&a, &remote), std::pair(&b, &memory)}) {
    const Memory& own = from == &a ? memory : remote;
    ASSERT_EQ(from->post(rdma_request(IBV_WR_RDMA_WRITE, 1, to->address(), to->mr->rkey), own.slice(8, 8)), 0);
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(from->poll().empty());
  }
  network->ip("link set cable_end up");
  (void)await(on_cable, IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.next().status, IBV_WC_SUCCESS);
}

TEST_F(InterfaceDevices, NewConnectionsFailWhileTheInterfaceIsDown) {
  Node zero(device_of("rail0", 0));
  const Node one(device_of("rail1", 1));
  Qp own(zero);
  const ibv_gid target = gid_at(one, kFirstIpv4);
  set(zero, "rail0", false);
  ASSERT_EQ(own.to_init(), 0);
  EXPECT_EQ(move_to_rtr(own, target, 0x123456), EINVAL) << "the device has no such GID now";
}

}  // namespace
}  // namespace rdmacomm::softdev::test
