#include "base/route.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cstring>

namespace rdmacomm {
namespace {

sockaddr_in ipv4(const char* text) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  EXPECT_EQ(inet_pton(AF_INET, text, &address.sin_addr), 1) << text;
  return address;
}

Result<sockaddr_storage> source_of(const sockaddr_in& peer, socklen_t length = sizeof(sockaddr_in)) {
  return source_towards(reinterpret_cast<const sockaddr*>(&peer), length);
}

TEST(Route, TheRouteToThisHostStartsAtThisHost) {
  for (const char* text : {"127.0.0.1", "127.3.2.1"}) {
    const auto source = source_of(ipv4(text));
    ASSERT_TRUE(source) << source.status().message();
    EXPECT_EQ(source->ss_family, AF_INET);
    const auto& address = reinterpret_cast<const sockaddr_in&>(*source).sin_addr;
    EXPECT_EQ(ntohl(address.s_addr) >> 24, 127U) << text;
  }
}

TEST(Route, AnIpv6TargetHasAnIpv6Source) {
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_port = htons(9);
  loopback.sin6_addr = in6addr_loopback;
  const auto source = source_towards(reinterpret_cast<const sockaddr*>(&loopback), sizeof(loopback));
  if (!source) GTEST_SKIP() << "no IPv6 here: " << source.status().message();
  EXPECT_EQ(source->ss_family, AF_INET6);
  const auto& address = reinterpret_cast<const sockaddr_in6&>(*source).sin6_addr;
  EXPECT_EQ(std::memcmp(&address, &in6addr_loopback, sizeof(address)), 0);
}

TEST(Route, WithoutARouteReturnsTheSystemsError) {
  // Limited broadcast needs a permission that the socket does not have.
  EXPECT_EQ(source_of(ipv4("255.255.255.255")).code(), std::errc::permission_denied);
  EXPECT_EQ(source_of(ipv4("127.0.0.1"), 4).code(), std::errc::invalid_argument);
  sockaddr_in neither = ipv4("127.0.0.1");
  neither.sin_family = AF_UNSPEC;
  EXPECT_EQ(source_of(neither).code(), std::errc::address_family_not_supported);
}

}  // namespace
}  // namespace rdmacomm
