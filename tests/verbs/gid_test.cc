#include "verbs/gid.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

namespace rdmacomm::verbs {
namespace {

ibv_gid gid(const char* text) {
  ibv_gid made{};
  EXPECT_EQ(inet_pton(AF_INET6, text, made.raw), 1) << text;
  return made;
}

TEST(Gid, ReachFollowsFromTheAddress) {
  for (const char* text : {"::ffff:10.0.0.1", "::ffff:169.253.0.1", "2001:db8::1", "fd00::1", "fec0::1", "::2"}) {
    EXPECT_EQ(reach_of(gid(text)), Reach::kRoutable) << text;
  }
  for (const char* text : {"fe80::1", "febf::1", "::ffff:169.254.0.1"}) {
    EXPECT_EQ(reach_of(gid(text)), Reach::kLink) << text;
  }
  for (const char* text : {"::1", "::ffff:127.0.0.1", "::ffff:127.8.9.1"}) {
    EXPECT_EQ(reach_of(gid(text)), Reach::kHost) << text;
  }
}

TEST(Gid, ASocketAddressConvertsToAGid) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ASSERT_EQ(inet_pton(AF_INET, "10.2.0.1", &ipv4.sin_addr), 1);
  EXPECT_TRUE(equal(gid_of(reinterpret_cast<const sockaddr&>(ipv4)), gid("::ffff:10.2.0.1")));
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  ASSERT_EQ(inet_pton(AF_INET6, "2001:db8::7", &ipv6.sin6_addr), 1);
  EXPECT_TRUE(equal(gid_of(reinterpret_cast<const sockaddr&>(ipv6)), gid("2001:db8::7")));
  ipv6.sin6_family = AF_UNIX;
  EXPECT_TRUE(is_empty(gid_of(reinterpret_cast<const sockaddr&>(ipv6))));
}

TEST(Gid, AGidConvertsToASocketAddress) {
  const SocketAddress ipv4 = socket_address_of(gid("::ffff:10.2.0.1"), 4711, 3);
  ASSERT_EQ(ipv4.length, sizeof(sockaddr_in));
  EXPECT_EQ(ipv4.get()->sa_family, AF_INET);
  EXPECT_EQ(ntohs(reinterpret_cast<const sockaddr_in*>(ipv4.get())->sin_port), 4711);
  for (const char* text : {"2001:db8::7", "fe80::7"}) {
    const SocketAddress ipv6 = socket_address_of(gid(text), 4711, 3);
    ASSERT_EQ(ipv6.length, sizeof(sockaddr_in6));
    EXPECT_EQ(ipv6.get()->sa_family, AF_INET6);
    EXPECT_EQ(ntohs(reinterpret_cast<const sockaddr_in6*>(ipv6.get())->sin6_port), 4711);
  }
  for (const char* text : {"::ffff:10.2.0.1", "2001:db8::7", "fe80::7", "::1"}) {
    EXPECT_TRUE(equal(gid_of(*socket_address_of(gid(text), 1, 2).get()), gid(text))) << text;
  }
}

TEST(Gid, OnlyALinkLocalAddressHasAnInterface) {
  const auto scope = [](const char* text) {
    const SocketAddress address = socket_address_of(gid(text), 1, 3);
    return reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_scope_id;
  };
  EXPECT_EQ(scope("fe80::7"), 3U);
  EXPECT_EQ(scope("2001:db8::7"), 0U);
}

TEST(Gid, OnlyTheMappedFormIsIpv4) {
  EXPECT_TRUE(is_mapped_ipv4(gid("::ffff:10.0.0.1")));
  EXPECT_FALSE(is_mapped_ipv4(gid("::fffe:10.0.0.1")));
  EXPECT_FALSE(is_mapped_ipv4(gid("2001:db8::ffff:a00:1")));
}

TEST(Gid, EmptyIsAllZeroes) {
  EXPECT_TRUE(is_empty(gid("::")));
  EXPECT_FALSE(is_empty(gid("::1")));
  EXPECT_TRUE(equal(gid("fe80::1"), gid("fe80::1")));
  EXPECT_FALSE(equal(gid("fe80::1"), gid("fe80::2")));
}

TEST(Gid, TheSubnetIsTheFirstHalf) {
  EXPECT_TRUE(same_subnet(gid("fe80::1"), gid("fe80::ffff:1")));
  EXPECT_FALSE(same_subnet(gid("fe80::1"), gid("fec0:0:0:1::1")));
}

}  // namespace
}  // namespace rdmacomm::verbs
