#include "device/host_network.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>

#include <algorithm>

#include "verbs/gid.h"

namespace rdmacomm {
namespace {

Gid gid_of_address(const char* text) {
  Gid made{};
  EXPECT_EQ(inet_pton(AF_INET6, text, made.raw.data()), 1) << text;
  return made;
}

TEST(HostNetwork, FindsTheLoopbackInterfaceOnce) {
  const auto interfaces = HostNetwork::system().interfaces();
  const unsigned index = if_nametoindex("lo");
  EXPECT_EQ(std::ranges::count(interfaces, index, &NetworkInterface::index), 1);
  const auto lo = std::ranges::find(interfaces, index, &NetworkInterface::index);
  ASSERT_NE(lo, interfaces.end());
  EXPECT_EQ(lo->name, "lo");
  EXPECT_TRUE(lo->owns(gid_of_address("::ffff:127.0.0.1")));
  EXPECT_FALSE(lo->owns(gid_of_address("::ffff:127.0.0.2")));
  EXPECT_EQ(lo->hardware_address.size(), 6U);
}

TEST(HostNetwork, EveryAddressOfThisHostIsReachedFromItself) {
  for (const NetworkInterface& interface : HostNetwork::system().interfaces()) {
    for (const Gid& address : interface.addresses) {
      const auto source = HostNetwork::system().source_towards(address, interface.index);
      if (!source) continue;  // the address is still tentative
      EXPECT_EQ(*source, address) << interface.name;
    }
  }
  const auto loopback = HostNetwork::system().source_towards(gid_of_address("::ffff:127.0.0.1"), 0);
  ASSERT_TRUE(loopback);
  EXPECT_TRUE(*loopback == gid_of_address("::ffff:127.0.0.1"));
}

TEST(HostNetwork, ThereIsNoRouteToNowhere) {
  // Limited broadcast needs a permission that the socket does not have.
  EXPECT_FALSE(HostNetwork::system().source_towards(gid_of_address("::ffff:255.255.255.255"), 0));
  EXPECT_FALSE(find_route(HostNetwork::system(), gid_of_address("::ffff:255.255.255.255"), 0, "nowhere"));
}

TEST(HostNetwork, ARouteNamesThePeer) {
  const auto route = find_route(HostNetwork::system(), gid_of_address("::ffff:127.0.0.1"), 7, "localhost");
  ASSERT_TRUE(route);
  EXPECT_EQ(route->peer, "localhost");
  EXPECT_EQ(route->interface, 7U);
}

}  // namespace
}  // namespace rdmacomm
