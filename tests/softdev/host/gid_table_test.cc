// The GIDs of soft0 are the addresses of the host. The tests create their own networks.
#include "softdev/host/gid_table.h"

#include <arpa/inet.h>
#include <endian.h>
#include <net/if.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"
#include "support/own_network.h"

namespace rdmacomm::softdev::test {
namespace {

using rdmacomm::testing::OwnNetwork;

ibv_gid gid(const char* ipv6) {
  ibv_gid parsed{};
  EXPECT_EQ(inet_pton(AF_INET6, ipv6, parsed.raw), 1) << ipv6;
  return parsed;
}

std::string text(const ibv_gid& gid) {
  char buffer[INET6_ADDRSTRLEN] = "";
  inet_ntop(AF_INET6, gid.raw, buffer, sizeof(buffer));
  return buffer;
}

bool is_link_local(const ibv_gid& gid) {
  return gid.raw[0] == 0xfe && gid.raw[1] == 0x80;
}

std::vector<ibv_gid_entry> table_of(const DeviceIdentity& identity) {
  std::vector<ibv_gid_entry> table;
  EXPECT_EQ(gid_table(identity, table), 0);
  return table;
}

std::vector<ibv_gid_entry> table_here() {
  return table_of({.name = "soft0"});
}

/// Stands for a link-local address that the kernel has created.
constexpr std::string_view kLinkLocal = "link-local";

/// Returns the entries of one type, as "address interface".
std::vector<std::string> described(const std::vector<ibv_gid_entry>& table, std::uint32_t type) {
  std::vector<std::string> lines;
  for (const ibv_gid_entry& entry : table) {
    if (entry.gid_type != type) continue;
    char name[IF_NAMESIZE] = "-";
    if (entry.ndev_ifindex != 0) if_indextoname(entry.ndev_ifindex, name);
    const std::string address(is_link_local(entry.gid) ? kLinkLocal : text(entry.gid));
    lines.push_back(address + " " + name);
  }
  return lines;
}

class GidTable : public ::testing::Test {
 protected:
  void SetUp() override {
    network.emplace();
    if (!network->why_not().empty()) GTEST_SKIP() << network->why_not();
  }
  std::optional<OwnNetwork> network;
};

TEST_F(GidTable, ADeviceWithoutAnyAddressHasItsOwnLinkLocalOne) {
  const auto table = table_here();
  ASSERT_EQ(table.size(), 2U);
  const std::uint64_t guid = htobe64(device_guid(0));
  for (const ibv_gid_entry& entry : table) {
    EXPECT_TRUE(is_link_local(entry.gid));
    EXPECT_EQ(std::memcmp(entry.gid.raw + 8, &guid, sizeof(guid)), 0);
    EXPECT_EQ(entry.ndev_ifindex, 0U);
  }
  EXPECT_EQ(table[0].gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V1));
  EXPECT_EQ(table[1].gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
}

TEST_F(GidTable, LoopbackAddressesFollowIt) {
  network->ip("link set lo up");
  EXPECT_EQ(described(table_here(), IBV_GID_TYPE_ROCE_V2),
            (std::vector<std::string>{"link-local -", "::ffff:127.0.0.1 lo", "::1 lo"}));
}

TEST_F(GidTable, IsLaidOutAsOnConnectX) {
  network->ip("link set lo up");
  network->add_interface("one");
  network->add_interface("two");
  network->ip("address add fd00::2/64 dev two nodad");
  network->ip("address add fd00::1/64 dev one nodad");
  network->ip("address add 10.9.2.1/24 dev two");
  network->ip("address add 10.9.1.1/24 dev one");
  network->ip("address add 10.9.1.2/24 dev one");
  const std::vector<std::string> expected = {"link-local one",      "::ffff:10.9.1.1 one", "::ffff:10.9.1.2 one",
                                             "::ffff:10.9.2.1 two", "fd00::1 one",         "fd00::2 two",
                                             "link-local two",      "::ffff:127.0.0.1 lo", "::1 lo"};
  const auto table = table_here();
  EXPECT_EQ(described(table, IBV_GID_TYPE_ROCE_V1), expected);
  EXPECT_EQ(described(table, IBV_GID_TYPE_ROCE_V2), expected);
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(table[i].gid_index, i);
    EXPECT_EQ(table[i].port_num, 1U);
  }
  EXPECT_EQ(text(table[3].gid), "::ffff:10.9.1.1");
  EXPECT_EQ(table[3].gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_ROCE_V2));
}

TEST_F(GidTable, InterfacesThatAreDownAreOmitted) {
  network->add_interface("one");
  network->ip("address add 10.9.1.1/24 dev one");
  ASSERT_EQ(table_here().size(), 4U);
  network->ip("link set one down");
  EXPECT_EQ(described(table_here(), IBV_GID_TYPE_ROCE_V2), std::vector<std::string>{"link-local -"});
}

TEST_F(GidTable, InfiniBandHasTheDefaultGidAlone) {
  network->ip("link set lo up");
  const auto table = table_of({.name = "soft1", .index = 1, .infiniband = true});
  ASSERT_EQ(table.size(), 1U);
  EXPECT_EQ(table[0].gid_type, static_cast<std::uint32_t>(IBV_GID_TYPE_IB));
  EXPECT_TRUE(is_local_gid(table_here(), table[0].gid)) << "another device of this host";
}

TEST_F(GidTable, DecidesWhichGidsAreLocal) {
  network->add_interface("one");
  network->ip("address add 10.9.1.1/24 dev one");
  const auto table = table_here();
  for (const ibv_gid_entry& entry : table) EXPECT_TRUE(is_local_gid(table, entry.gid)) << text(entry.gid);
  EXPECT_TRUE(is_local_gid(table, gid("::ffff:127.0.0.7")));
  EXPECT_TRUE(is_local_gid(table, table_of({.name = "soft5", .index = 5, .infiniband = true})[0].gid));
  for (const char* other : {"::ffff:10.9.1.2", "fd00::7", "fe80::7"})
    EXPECT_FALSE(is_local_gid(table, gid(other))) << other;
}

TEST_F(GidTable, ALinkLocalTargetIsReachedByTheInterfaceOfTheOwnAddress) {
  network->add_interface("one");
  network->add_interface("two");
  network->ip("address add 10.9.2.1/24 dev two");
  const auto table = table_here();
  ASSERT_EQ(described(table, IBV_GID_TYPE_ROCE_V2),
            (std::vector<std::string>{"link-local one", "::ffff:10.9.2.1 two", "link-local two"}));
  const ibv_gid there = gid("fe80::7");
  for (std::uint32_t index = 0; index < table.size(); ++index) {
    const TargetPlace place = place_of(table, table, index, there);
    EXPECT_FALSE(place.on_this_host);
    EXPECT_EQ(place.interface, if_nametoindex(index < 2 ? "one" : "two")) << index;
  }
  EXPECT_EQ(place_of(table, table, 99, there).interface, 0U) << "no such entry";
  EXPECT_EQ(place_of(table, table, 3, gid("::ffff:10.9.2.2")).interface, 0U) << "the routes know";
  EXPECT_TRUE(place_of(table, table, 5, table[0].gid).on_this_host);
}

TEST_F(GidTable, ATargetWithoutAnInterfaceHasNone) {
  network->ip("link set lo up");
  const TargetPlace place = place_of(table_here(), table_here(), 1, gid("fe80::7"));
  EXPECT_FALSE(place.on_this_host);
  EXPECT_EQ(place.interface, 0U);
}

TEST_F(GidTable, NetworkNamespacesAreDifferentHosts) {
  const std::uint64_t guid = device_guid(0);
  const ibv_gid own = table_here()[0].gid;
  EXPECT_EQ(device_guid(0), guid);
  EXPECT_EQ(device_guid(3), guid + 3);
  {
    const OwnNetwork other;
    ASSERT_EQ(other.why_not(), "");
    EXPECT_NE(device_guid(0), guid);
    EXPECT_NE(device_guid(0), device_guid(3));
    EXPECT_FALSE(is_local_gid(table_here(), own));
  }
  EXPECT_EQ(device_guid(0), guid);
}

TEST_F(GidTable, EachEntryReachesThisHost) {
  network->ip("link set lo up");
  network->add_interface("one");
  network->ip("address add 10.9.1.1/24 dev one");
  const Node node;
  const std::size_t entries = table_here().size();
  for (std::uint32_t index = 0; index < entries; ++index) {
    ibv_gid_entry entry{};
    ASSERT_EQ(api().query_gid_entry(node.context.get(), 1, index, &entry), 0);
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = 1;
    attributes.grh.dgid = entry.gid;
    attributes.grh.sgid_index = static_cast<std::uint8_t>(index);
    ibv_ah* const ah = create_ah(node.pd.get(), &attributes);
    ASSERT_NE(ah, nullptr) << index;
    EXPECT_EQ(destroy_ah(ah), 0);
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
