// Finds out whether an address belongs to this host.
#include <gtest/gtest.h>

#include "connector/socket.h"

namespace rdmacomm {
namespace {

bool is_own(const char* host) {
  const auto addresses = resolve({host, 2020});
  return addresses && is_of_this_host(addresses->front());
}

TEST(LocalAddress, AddressesOfInterfacesAndTheWildcardAreLocal) {
  EXPECT_TRUE(is_own("127.0.0.1"));
  EXPECT_TRUE(is_own("0.0.0.0"));
}

TEST(LocalAddress, AddressesOfOtherHostsAreNotLocal) {
  EXPECT_FALSE(is_own("192.0.2.1")) << "RFC 5737: kept for documentation";
  EXPECT_FALSE(is_own("2001:db8::1")) << "RFC 3849: the same";
}

TEST(LocalAddress, IsLocalEvenIfAnotherProgramListensThere) {
  auto taken = any_address(AF_INET, 0);
  const UniqueFd fd(socket(AF_INET, SOCK_DGRAM, 0));
  ASSERT_EQ(bind(fd.get(), taken.get(), taken.length), 0);
  const auto bound = SocketAddress::of_local_end(fd.get());
  ASSERT_TRUE(bound);
  EXPECT_TRUE(is_of_this_host(*bound));
}

}  // namespace
}  // namespace rdmacomm
