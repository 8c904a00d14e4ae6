// Events for changes of the network on this host. The tests create their own networks.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <net/if.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"
#include "support/own_network.h"

namespace rdmacomm::softdev::test {
namespace {

using rdmacomm::testing::OwnNetwork;
using Events = std::vector<ibv_event_type>;

/// The events that can be read without waiting.
Events events_of(const Node& node) {
  ibv_context& context = *node.context.get();
  fcntl(context.async_fd, F_SETFL, fcntl(context.async_fd, F_GETFL) | O_NONBLOCK);
  Events found;
  ibv_async_event event{};
  while (api().get_async_event(&context, &event) == 0) {
    EXPECT_EQ(event.element.port_num, 1);
    api().ack_async_event(&event);
    found.push_back(event.event_type);
  }
  EXPECT_EQ(errno, EAGAIN);
  return found;
}

/// Waits until there are `count` events, for 20 s at most. The kernel reports carriers and IPv6 addresses
/// asynchronously, in worker threads.
Events next_events(const Node& node, std::size_t count) {
  Events found = events_of(node);
  while (found.size() < count && readable(node.context.get()->async_fd, 20'000)) {
    const Events more = events_of(node);
    found.insert(found.end(), more.begin(), more.end());
  }
  return found;
}

/// Adds an address by netlink. Another program would need descriptors.
void add_address(const UniqueFd& socket, std::string_view interface, const char* address) {
  ifreq request{};
  interface.copy(request.ifr_name, IFNAMSIZ - 1);
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ASSERT_EQ(inet_pton(AF_INET, address, &ipv4.sin_addr), 1);
  std::memcpy(&request.ifr_addr, &ipv4, sizeof(ipv4));
  ASSERT_EQ(ioctl(socket.get(), SIOCSIFADDR, &request), 0);
}

ibv_port_attr port_of(const Node& node) {
  ibv_port_attr attributes{};
  EXPECT_EQ(api().query_port(node.context.get(), 1, &attributes), 0);
  return attributes;
}

class PortEvents : public ::testing::Test {
 protected:
  void SetUp() override {
    network.emplace();
    if (!network->why_not().empty()) GTEST_SKIP() << network->why_not();
    network->disable_ipv6();
    network->ip("link set lo up");
  }
  std::optional<OwnNetwork> network;
};

TEST_F(PortEvents, AnAddressThatIsAddedOrRemovedChangesTheTable) {
  const Node node;
  const int entries = port_of(node).gid_tbl_len;
  EXPECT_EQ(events_of(node), Events{});
  network->ip("address add 10.9.1.1/32 dev lo");
  EXPECT_TRUE(readable(node.context->async_fd, 20'000));
  EXPECT_EQ(events_of(node), Events{IBV_EVENT_GID_CHANGE});
  EXPECT_FALSE(readable(node.context->async_fd));
  EXPECT_EQ(port_of(node).gid_tbl_len, entries + 2);
  network->ip("address del 10.9.1.1/32 dev lo");
  EXPECT_EQ(events_of(node), Events{IBV_EVENT_GID_CHANGE});
  EXPECT_EQ(port_of(node).gid_tbl_len, entries);
}

TEST_F(PortEvents, AProcessWithoutAFreeDescriptorGetsTheEventLater) {
  const Node node;
  const int entries = port_of(node).gid_tbl_len;
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  add_address(socket, "lo:1", "10.9.1.1");
  ibv_port_attr attributes{};
  EXPECT_EQ(api().query_port(node.context.get(), 1, &attributes), EMFILE);
  ibv_gid_entry entry{};
  EXPECT_EQ(api().query_gid_entry(node.context.get(), 1, 0, &entry), EMFILE);
  EXPECT_EQ(events_of(node), Events{}) << "the port is up, and the table is what it was";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(events_of(node), Events{IBV_EVENT_GID_CHANGE});
  EXPECT_EQ(port_of(node).gid_tbl_len, entries + 2);
}

TEST_F(PortEvents, TheTableIsCurrentAndCachedWhileNothingChanges) {
  const Node node;
  const auto entries = static_cast<std::uint32_t>(port_of(node).gid_tbl_len);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  ibv_gid_entry entry{};
  EXPECT_EQ(api().query_gid_entry(node.context.get(), 1, 0, &entry), 0);
  EXPECT_EQ(api().query_gid_entry(node.context.get(), 1, entries, &entry), ENODATA);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  network->ip("address add 10.9.1.1/32 dev lo");
  EXPECT_EQ(api().query_gid_entry(node.context.get(), 1, entries + 1, &entry), 0);
  network->ip("address del 10.9.1.1/32 dev lo");
  EXPECT_EQ(api().query_gid_entry(node.context.get(), 1, entries, &entry), ENODATA);
  EXPECT_EQ(events_of(node), (Events{IBV_EVENT_GID_CHANGE, IBV_EVENT_GID_CHANGE})) << "that nobody has taken before";
}

TEST_F(PortEvents, AnIpv6AddressChangesTheTableToo) {
  const Node node;
  network->run("echo 0 > /proc/sys/net/ipv6/conf/lo/disable_ipv6");
  const int entries = port_of(node).gid_tbl_len;
  network->ip("address add fd00::9/128 dev lo nodad");
  for (const ibv_event_type event : next_events(node, 1)) EXPECT_EQ(event, IBV_EVENT_GID_CHANGE);
  EXPECT_GE(port_of(node).gid_tbl_len, entries + 2);
}

/// The descriptor is blocking: a program that finds it readable and takes an event must not wait for another one.
TEST_F(PortEvents, AChangeThatDoesNotAffectTheTableIsNoEvent) {
  const Node node;
  network->ip("link set lo txqueuelen 500");
  network->ip("link set lo mtu 9000");
  EXPECT_FALSE(readable(node.context->async_fd));
  network->ip("address add 10.9.1.1/32 dev lo");
  EXPECT_TRUE(readable(node.context->async_fd, 20'000));
  ibv_async_event event{};
  ASSERT_EQ(api().get_async_event(node.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_GID_CHANGE);
  api().ack_async_event(&event);
  EXPECT_FALSE(readable(node.context->async_fd));
}

TEST_F(PortEvents, EachPortHasItsOwnNumbersAndEvents) {
  Node node{DeviceIdentity{.name = "soft0", .infiniband = true, .ports = 2}};
  ibv_context* const context = node.context.get();
  ibv_device_attr device{};
  ASSERT_EQ(api().query_device(context, &device), 0);
  EXPECT_EQ(device.phys_port_cnt, 2);
  std::vector<std::uint16_t> lids;
  std::vector<std::uint64_t> interfaces;
  for (const std::uint8_t port : {std::uint8_t{1}, std::uint8_t{2}}) {
    ibv_port_attr attributes{};
    ibv_gid_entry gid{};
    ASSERT_EQ(query_port(context, port, &attributes), 0);
    ASSERT_EQ(query_gid_entry(context, port, 0, &gid), 0);
    EXPECT_EQ(gid.port_num, port);
    lids.push_back(attributes.lid);
    interfaces.push_back(gid.gid.global.interface_id);
  }
  EXPECT_NE(lids[0], lids[1]);
  EXPECT_NE(interfaces[0], interfaces[1]);
  for (const std::uint8_t port : {std::uint8_t{0}, std::uint8_t{3}}) {
    ibv_port_attr attributes{};
    ibv_gid_entry gid{};
    __be16 key = 0;
    EXPECT_EQ(query_port(context, port, &attributes), EINVAL);
    EXPECT_EQ(query_gid_entry(context, port, 0, &gid), EINVAL);
    EXPECT_EQ(query_pkey(context, port, 0, &key), -1);
  }
  const Qp qp{node};
  ibv_qp_attr to{};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 3;
  constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  EXPECT_EQ(api().modify_qp(qp.qp.get(), &to, kInit), EINVAL);
  to.port_num = 2;
  EXPECT_EQ(api().modify_qp(qp.qp.get(), &to, kInit), 0);

  network->ip("link set lo down");
  for (const int port : {1, 2}) {
    ibv_async_event event{};
    ASSERT_EQ(api().get_async_event(context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
    EXPECT_EQ(event.element.port_num, port);
    api().ack_async_event(&event);
  }
}

TEST_F(PortEvents, InfiniBandHasAPortButNoAddresses) {
  const Node node{DeviceIdentity{.name = "soft0", .infiniband = true}};
  network->ip("address add 10.9.1.1/32 dev lo");
  EXPECT_EQ(events_of(node), Events{});
  network->ip("link set lo down");
  EXPECT_EQ(events_of(node), Events{IBV_EVENT_PORT_ERR});
}

TEST_F(PortEvents, ThePortGoesDownWithTheLastInterface) {
  network->add_interface("one");
  const Node node;
  EXPECT_EQ(port_of(node).state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port_of(node).phys_state, 5);
  network->ip("link set lo down");
  EXPECT_EQ(events_of(node), Events{IBV_EVENT_GID_CHANGE}) << "the other one is up";
  EXPECT_EQ(port_of(node).state, IBV_PORT_ACTIVE);
  network->ip("link set one_end down");  // the link is lost, the addresses remain
  EXPECT_EQ(next_events(node, 1), Events{IBV_EVENT_PORT_ERR});
  EXPECT_EQ(port_of(node).state, IBV_PORT_DOWN);
  EXPECT_EQ(port_of(node).phys_state, 3);
  network->ip("link set lo up");
  EXPECT_EQ(events_of(node), (Events{IBV_EVENT_PORT_ACTIVE, IBV_EVENT_GID_CHANGE}));
  EXPECT_EQ(port_of(node).state, IBV_PORT_ACTIVE);
}

TEST_F(PortEvents, AShortLossOfTheLinkIsReportedToALateReader) {
  const Node node;
  network->ip("link set lo down");
  network->ip("link set lo up");
  Events told = events_of(node);
  std::erase(told, IBV_EVENT_GID_CHANGE);  // the address may have been absent for a moment, too
  EXPECT_EQ(told, (Events{IBV_EVENT_PORT_ERR, IBV_EVENT_PORT_ACTIVE}));
}

TEST_F(PortEvents, AnInterfaceThatIsRemovedIsDown) {
  network->ip("link set lo down");
  network->add_interface("one");
  network->ip("address add 10.9.1.1/24 dev one");
  const Node node;
  network->ip("link del one");
  // The kernel may report the two in any order.
  EXPECT_THAT(next_events(node, 2), ::testing::UnorderedElementsAre(IBV_EVENT_PORT_ERR, IBV_EVENT_GID_CHANGE));
}

TEST_F(PortEvents, AnInterfaceThatLeavesItsBridgeIsNotDown) {
  network->ip("link set lo down");
  network->add_interface("one");
  network->ip("link add bridge type bridge");
  network->ip("link set one master bridge");
  const Node node;
  network->ip("link set one nomaster");
  EXPECT_EQ(port_of(node).state, IBV_PORT_ACTIVE);
  for (const ibv_event_type event : events_of(node)) EXPECT_EQ(event, IBV_EVENT_GID_CHANGE);
}

TEST_F(PortEvents, AfterMoreChangesThanTheSocketHoldsTheStateIsRight) {
  const Node node;
  network->ip("address add 10.9.1.1/32 dev lo");
  for (int i = 0; i < 5; ++i) network->run("seq -f 'link set lo mtu %g' 2000 2999 | ip -batch -");
  network->ip("link set lo down");
  const Events all = events_of(node);
  EXPECT_EQ(std::ranges::count(all, IBV_EVENT_PORT_ERR), 1);
  EXPECT_GE(std::ranges::count(all, IBV_EVENT_GID_CHANGE), 1);
  EXPECT_EQ(port_of(node).state, IBV_PORT_DOWN);
}

TEST_F(PortEvents, EachContextGetsTheEvent) {
  const Node one;
  const Node other;
  network->ip("address add 10.9.1.1/32 dev lo");
  EXPECT_EQ(events_of(one), Events{IBV_EVENT_GID_CHANGE});
  EXPECT_EQ(events_of(other), Events{IBV_EVENT_GID_CHANGE});
  EXPECT_EQ(events_of(one), Events{});
}

TEST_F(PortEvents, AnEventWakesASleepingReader) {
  const Node node;
  ibv_async_event event{};
  std::thread sleeper([&] { EXPECT_EQ(api().get_async_event(node.context.get(), &event), 0) << errno; });
  network->ip("link set lo mtu 9000");  // no event: the thread continues to sleep
  network->ip("address add 10.9.1.1/32 dev lo");
  sleeper.join();
  EXPECT_EQ(event.event_type, IBV_EVENT_GID_CHANGE);
}

TEST_F(PortEvents, ASignalHandlerInterruptsASleepingReader) {
  const Node node;
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = [](int) {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<bool> over = false;
  std::thread sleeper([&] {
    ibv_async_event event{};
    EXPECT_EQ(api().get_async_event(node.context.get(), &event), -1);
    EXPECT_EQ(errno, EINTR);
    over = true;
  });
  while (!over) {  // a signal before the call interrupts nothing
    pthread_kill(sleeper.native_handle(), SIGUSR1);
    std::this_thread::yield();
  }
  sleeper.join();
  ASSERT_EQ(sigaction(SIGUSR1, &before, nullptr), 0);
}

TEST_F(PortEvents, AnEdgeTriggeredWatcherNoticesEachChange) {
  const Node node;
  const UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  epoll_event wanted{};
  wanted.events = EPOLLIN | EPOLLET;
  ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, node.context->async_fd, &wanted), 0);
  for (int i = 1; i <= 3; ++i) {
    network->ip("address add 10.9.1." + std::to_string(i) + "/32 dev lo");
    epoll_event ready{};
    ASSERT_EQ(epoll_wait(epoll.get(), &ready, 1, 20'000), 1);
    EXPECT_EQ(events_of(node), Events{IBV_EVENT_GID_CHANGE});
  }
}

TEST_F(PortEvents, QueuePairsWorkWhileThePortIsDown) {
  Pair pair;
  Memory memory(pair.a_node);
  Memory remote(pair.b_node);
  network->ip("link set lo down");
  ASSERT_EQ(pair.b.post_recv(remote.slice(0, 8), 1), 0);
  ASSERT_EQ(pair.a.post(send_request(2), memory.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
