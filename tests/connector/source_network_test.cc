#include "connector/source_network.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace rdmacomm {
namespace {

TEST(SourceNetwork, CoversTheAddressesThatOneHostCanHave) {
  const auto of = [](const char* text) { return SourceNetwork::of(text); };
  EXPECT_EQ(of("10.0.0.1:2020"), of("10.0.0.1:41234"));
  EXPECT_NE(of("10.0.0.1:2020"), of("10.0.0.2:2020"));
  EXPECT_EQ(of("[2001:db8:0:1::1]:2020"), of("[2001:db8:0:1:ffff:1:2:3]:9"));
  EXPECT_NE(of("[2001:db8:0:1::1]:2020"), of("[2001:db8:0:2::1]:2020"));
  EXPECT_NE(of("[fe80::1%eth0]:2020"), of("[fe80::2%eth0]:2020")) << "two hosts of one link";
  EXPECT_NE(of("[fe80::1%eth0]:2020"), of("[fe80::1%eth1]:2020")) << "of two links";
  EXPECT_EQ(of("[fe80::1%eth0]:2020"), of("[fe80::1%eth0]:9"));
  EXPECT_NE(of("[::1]:2020"), of("no address"));
  EXPECT_EQ(of("nothing"), of("no address:1"));
}

TEST(SourceNetwork, IsShownAsAnAddress) {
  for (const auto& [peer, host] : std::vector<std::pair<const char*, const char*>>{
           {"10.0.0.2:41234", "10.0.0.2"},
           {"10.0.0.2:41234 (node7, pid 4711; data QPN 0x000012)", "10.0.0.2"},
           {"[::ffff:10.0.0.2]:41234", "10.0.0.2"},
           {"[2001:db8:1:2:3:4:5:6]:7", "2001:db8:1:2::"},
           {"[2001:db8:1:2:ffff::1]:7 (node)", "2001:db8:1:2::"},
           {"[::1]:7", "::1"},
           {"[fe80::1%eth0]:7", "fe80::1%eth0"},
           {"[fe80::1]:7", "fe80::1"},
           {"[", "::"},
           {"", "::"}}) {
    EXPECT_EQ(SourceNetwork::of(peer).to_text(), host) << peer;
  }
}

}  // namespace
}  // namespace rdmacomm
