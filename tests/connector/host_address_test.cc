#include "connector/host_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>

namespace rdmacomm {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<std::vector<HostAddress>> find(const char* host) {
  return find_addresses({.host = host}, Deadline::after(std::chrono::seconds(20)));
}

TEST(HostAddress, AnAddressIsItself) {
  const auto ipv4 = find("10.0.0.7");
  ASSERT_TRUE(ipv4) << ipv4.status().message();
  ASSERT_EQ(ipv4->size(), 1U);
  EXPECT_EQ(ipv4->front().text, "10.0.0.7");
  EXPECT_EQ(ipv4->front().gid.raw[11], 0xff);
  EXPECT_EQ(ipv4->front().gid.raw[15], 7);
  EXPECT_EQ(ipv4->front().scope, 0U);
  const auto ipv6 = find("[2001:db8::7]");
  ASSERT_TRUE(ipv6) << ipv6.status().message();
  EXPECT_EQ(ipv6->front().text, "2001:db8::7");
  EXPECT_EQ(ipv6->front().gid.raw[0], 0x20);
}

TEST(HostAddress, ALinkLocalAddressHasItsInterface) {
  const auto address = find("fe80::1%lo");
  ASSERT_TRUE(address) << address.status().message();
  EXPECT_EQ(address->front().scope, if_nametoindex("lo"));
  EXPECT_EQ(address->front().text, "fe80::1%lo");
}

TEST(HostAddress, ALinkLocalAddressWithoutAnInterfaceIsRefused) {
  const auto address = find("[fe80::1]");
  EXPECT_EQ(address.code(), Errc::kInvalidArgument);
  EXPECT_THAT(address.status().message(), AllOf(HasSubstr("fe80::1"), HasSubstr("fe80::1%eth0")));
}

TEST(HostAddress, AMissingInterfaceIsNamed) {
  const auto address = find("fe80::1%none0");
  EXPECT_EQ(address.code(), Errc::kInvalidArgument);
  EXPECT_THAT(address.status().message(), AllOf(HasSubstr("fe80::1%none0"), HasSubstr("interface")));
}

TEST(HostAddress, TheWildcardAddressIsRecognized) {
  for (const char* host : {"0.0.0.0", "::"}) EXPECT_TRUE(find(host)->front().is_any()) << host;
  for (const char* host : {"127.0.0.1", "::1"}) EXPECT_FALSE(find(host)->front().is_any()) << host;
}

TEST(HostAddress, NoHostAndUnknownHostsAreInvalid) {
  EXPECT_EQ(find("").code(), Errc::kInvalidArgument);
  EXPECT_EQ(find("300.1.2.3.4.invalid.").has_value(), false);
}

}  // namespace
}  // namespace rdmacomm
