// Tables of real machines, and the choice for each. If a layout was seen in public, `seen` names the source; addresses
// are shortened. "kernel": drivers/infiniband/core/{cache,roce_gid_mgmt}.c create this layout. "rxe", "siw": seen on
// Linux 6.1.
#include "device/addressing.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNvidia = "docs.nvidia.com/networking, RDMA over Converged Ethernet, GID table";

Gid gid(const char* text) {
  Gid made{};
  EXPECT_EQ(inet_pton(AF_INET6, text, made.raw.data()), 1) << text;
  return made;
}
GidEntry v1(int index, const char* address, unsigned interface) {
  return {index, GidType::kRoceV1, gid(address), interface};
}
GidEntry v2(int index, const char* address, unsigned interface) {
  return {index, GidType::kRoceV2, gid(address), interface};
}
GidEntry plain(int index, const char* address, unsigned interface = 0) {
  return {index, GidType::kIb, gid(address), interface};
}
/// The usual pair of RoCE v1 and v2 for each address.
std::vector<GidEntry> pairs(int first, std::initializer_list<std::pair<const char*, unsigned>> addresses) {
  std::vector<GidEntry> table;
  for (const auto& [address, interface] : addresses) {
    table.push_back(v1(first++, address, interface));
    table.push_back(v2(first++, address, interface));
  }
  return table;
}

DeviceFacts device(const char* name, Transport transport, std::vector<std::vector<GidEntry>> ports) {
  DeviceFacts facts{.name = name};
  for (auto& gids : ports) {
    facts.ports.push_back({.device = name,
                           .number = static_cast<std::uint8_t>(facts.ports.size() + 1),
                           .transport = transport,
                           .state = IBV_PORT_ACTIVE,
                           .gids = std::move(gids)});
  }
  return facts;
}
DeviceFacts roce(const char* name, std::vector<GidEntry> gids) {
  return device(name, Transport::kRoce, {std::move(gids)});
}
DeviceFacts down(DeviceFacts facts, std::size_t port = 0) {
  facts.ports[port].state = IBV_PORT_DOWN;
  return facts;
}
/// soft0's list on a host with these addresses.
DeviceFacts soft0(std::initializer_list<std::pair<const char*, unsigned>> addresses) {
  auto gids = pairs(0, {{"fe80::1", 0}});
  for (const GidEntry& entry : pairs(2, addresses)) gids.push_back(entry);
  for (const GidEntry& entry : pairs(static_cast<int>(gids.size()), {{"::ffff:127.0.0.1", 1}})) gids.push_back(entry);
  return device("soft0", Transport::kSoftware, {gids});
}

using Bytes = std::vector<std::uint8_t>;
NetworkInterface interface(unsigned index, const char* name, std::initializer_list<const char*> addresses,
                           Bytes hardware_address = {}) {
  NetworkInterface made{.index = index, .name = name, .hardware_address = std::move(hardware_address)};
  for (const char* address : addresses) made.addresses.push_back(gid(address));
  return made;
}
NetworkInterface lo() {
  return interface(1, "lo", {"::ffff:127.0.0.1", "::1"}, {0, 0, 0, 0, 0, 0});
}
/// IP over InfiniBand: 4 bytes of flags and QPN, then the port's GID.
NetworkInterface ipoib(unsigned index, const char* name, const char* address, const char* port_gid) {
  Bytes hardware(20);
  const Gid of_port = gid(port_gid);
  std::copy(of_port.raw.begin(), of_port.raw.end(), hardware.begin() + 4);
  return interface(index, name, {address}, hardware);
}

PeerRoute route(const char* source, const char* peer, unsigned interface = 0) {
  return {.source = gid(source), .peer = peer, .interface = interface};
}

struct Layout {
  const char* name;
  const char* seen;
  AddressingInput input;
  const char* device;  ///< the chosen device; nullptr: none, and the error contains `says`
  int port = 1;
  int index = -1;  ///< of the best GID; -1: none
  const char* says = "";
};

const Bytes kMac = {0x52, 0x54, 0x00, 0x12, 0x34, 0x56};
constexpr const char* kMacGid = "5254:12:3456::";                   // siw derives it from kMac
constexpr const char* kLinkLocalOfMac = "fe80::5054:ff:fe12:3456";  // the kernel derives it from kMac

std::vector<Layout> ethernet_layouts() {
  const auto mlx5_0 = roce("mlx5_0", pairs(0, {{"fe80::a288:c2ff:fe5b:3ec", 2}, {"::ffff:11.0.0.72", 2}}));
  const auto mlx5_1 = roce("mlx5_1", pairs(0, {{"fe80::a288:c2ff:fe5b:374", 3}, {"::ffff:11.0.0.73", 3}}));
  const std::vector two_nics = {interface(2, "ens3np0", {"::ffff:11.0.0.72"}, {0xa0, 0x88, 0xc2, 0x5b, 0x03, 0xec}),
                                interface(3, "ens2np0", {"::ffff:11.0.0.73"}, {0xa0, 0x88, 0xc2, 0x5b, 0x03, 0x74})};
  const auto vlans = roce("mlx5_0", pairs(0, {{kLinkLocalOfMac, 2},
                                              {"::ffff:10.0.0.1", 2},
                                              {kLinkLocalOfMac, 5},
                                              {"::ffff:10.0.100.1", 5},
                                              {kLinkLocalOfMac, 6},
                                              {"::ffff:10.0.200.1", 6}}));
  const std::vector vlan_interfaces = {interface(2, "ens1", {"::ffff:10.0.0.1"}, kMac),
                                       interface(5, "ens1.100", {"::ffff:10.0.100.1"}, kMac),
                                       interface(6, "ens1.200", {"::ffff:10.0.200.1"}, kMac)};
  const auto two_ports =
      device("mlx4_0", Transport::kRoce,
             {pairs(0, {{"fe80::1", 2}, {"::ffff:10.1.0.1", 2}}), pairs(0, {{"fe80::2", 3}, {"::ffff:10.2.0.1", 3}})});
  const std::vector two_port_interfaces = {interface(2, "eth2", {"fe80::1", "::ffff:10.1.0.1"}),
                                           interface(3, "eth3", {"fe80::2", "::ffff:10.2.0.1"})};
  return {
      {.name = "mlx5_pairs_of_v1_and_v2",
       .seen = "github.com/NVIDIA/nccl/issues/1131",
       .input = {.devices = {mlx5_0, mlx5_1}, .interfaces = two_nics, .route = route("::ffff:11.0.0.73", "11.0.0.9")},
       .device = "mlx5_1",
       .index = 3,
       .says =
           "chose mlx5_1 port 1 GID 3 ::ffff:11.0.0.73 (RoCE v2): the route to 11.0.0.9 uses ens2np0, and this GID is "
           "the address of that interface"},
      {.name = "mlx5_no_peer_yet_takes_the_first",
       .seen = "github.com/NVIDIA/nccl/issues/1131",
       .input = {.devices = {mlx5_0, mlx5_1}, .interfaces = two_nics},
       .device = "mlx5_0",
       .index = 3,
       .says = "no peer is known yet"},
      {.name = "two_link_local_addresses_before_the_ipv4_one",
       .seen = "github.com/IBM/SpectrumScale_NETWORK_READINESS/pull/4",
       .input = {.devices = {roce("mlx5_0", pairs(0, {{"fe80::e42:a1ff:fe5d:4db8", 2},
                                                      {"fe80::1186:a6b1:3f0b:c441", 2},
                                                      {"::ffff:172.19.0.60", 2}}))},
                 .interfaces = {interface(2, "ens1f0", {"fe80::1186:a6b1:3f0b:c441", "::ffff:172.19.0.60"},
                                          {0x0c, 0x42, 0xa1, 0x5d, 0x4d, 0xb8})},
                 .route = route("::ffff:172.19.0.60", "172.19.4.2")},
       .device = "mlx5_0",
       .index = 5},
      {.name = "routed_rfc1918_is_no_overlay",
       .seen = "github.com/kvcache-ai/Mooncake/issues/2747",
       .input = {.devices = {roce("rdma0", {v2(0, "fe80::690:81ff:fe37:a9e8", 2), v2(1, "::ffff:10.102.9.101", 2)})},
                 .interfaces = {interface(2, "rdma0", {"fe80::690:81ff:fe37:a9e8", "::ffff:10.102.9.101"})},
                 .route = route("::ffff:10.102.9.101", "10.102.17.5")},
       .device = "rdma0",
       .index = 1},
      {.name = "bonded_one_device_on_the_bond",
       .seen = "github.com/NVIDIA/nccl/issues/769",
       .input = {.devices = {roce("mlx5_bond_0",
                                  pairs(0, {{"fe80::ac0:ebff:feda:1cfb", 7}, {"::ffff:200.0.209.6", 7}}))},
                 .interfaces = {interface(2, "ens1f0", {}), interface(3, "ens1f1", {}),
                                interface(7, "bond0", {"::ffff:200.0.209.6"}, {0x08, 0xc0, 0xeb, 0xda, 0x1c, 0xfb})},
                 .route = route("::ffff:200.0.209.6", "200.0.209.7")},
       .device = "mlx5_bond_0",
       .index = 3,
       .says = "uses bond0"},
      {.name = "bonded_vlan_on_top",
       .seen = kNvidia,
       .input = {.devices = {roce("mlx5_bond_0", pairs(0, {{"::ffff:10.0.0.1", 7}, {"::ffff:10.0.40.1", 8}}))},
                 .interfaces = {interface(7, "bond0", {"::ffff:10.0.0.1"}),
                                interface(8, "bond0.40", {"::ffff:10.0.40.1"})},
                 .route = route("::ffff:10.0.40.1", "10.0.40.2")},
       .device = "mlx5_bond_0",
       .index = 3,
       .says = "uses bond0.40"},
      {.name = "vlan_of_the_route",
       .seen = kNvidia,
       .input = {.devices = {vlans}, .interfaces = vlan_interfaces, .route = route("::ffff:10.0.200.1", "10.0.200.9")},
       .device = "mlx5_0",
       .index = 11,
       .says = "uses ens1.200"},
      {.name = "untagged_beside_vlans",
       .seen = kNvidia,
       .input = {.devices = {vlans}, .interfaces = vlan_interfaces, .route = route("::ffff:10.0.0.1", "10.0.0.9")},
       .device = "mlx5_0",
       .index = 3,
       .says = "uses ens1,"},
      {.name = "two_ports_second_on_the_route",
       .seen = kNvidia,
       .input = {.devices = {two_ports},
                 .interfaces = two_port_interfaces,
                 .route = route("::ffff:10.2.0.1", "10.2.0.2")},
       .device = "mlx4_0",
       .port = 2,
       .index = 3,
       .says = "uses eth3"},
      {.name = "two_ports_first_down",
       .seen = "kernel",
       .input = {.devices = {down(two_ports)}, .interfaces = two_port_interfaces},
       .device = "mlx4_0",
       .port = 2,
       .index = 3,
       .says = "not usable: port 1 of mlx4_0 is DOWN"},
      {.name = "two_ports_the_one_on_the_route_is_down",
       .seen = "kernel",
       .input = {.devices = {down(two_ports, 1)},
                 .interfaces = two_port_interfaces,
                 .route = route("::ffff:10.2.0.1", "10.2.0.2")},
       .device = "mlx4_0",
       .port = 1,
       .index = 3,
       .says = "which is not an address of this port"},
      {.name = "several_addresses_on_one_interface",
       .seen = kNvidia,
       .input = {.devices = {roce(
                     "mlx5_0", pairs(0, {{"::ffff:10.0.0.1", 2}, {"::ffff:10.0.0.50", 2}, {"::ffff:192.168.7.1", 2}}))},
                 .interfaces = {interface(2, "ens1", {"::ffff:10.0.0.1", "::ffff:10.0.0.50", "::ffff:192.168.7.1"})},
                 .route = route("::ffff:192.168.7.1", "192.168.7.2")},
       .device = "mlx5_0",
       .index = 5},
      {.name = "the_source_address_came_too_late_for_the_table",
       .seen = "kernel",
       .input = {.devices = {roce("mlx5_0", pairs(0, {{"::ffff:10.0.0.1", 2}})),
                             roce("mlx5_1", pairs(0, {{"::ffff:10.9.0.1", 3}}))},
                 .interfaces = {interface(2, "ens1", {"::ffff:10.0.0.1"}),
                                interface(3, "ens2", {"::ffff:10.9.0.1", "::ffff:10.9.0.2"})},
                 .route = route("::ffff:10.9.0.2", "10.9.0.3")},
       .device = "mlx5_1",
       .index = 1,
       .says = "uses ens2, and this GID belongs to that interface; ::ffff:10.9.0.2 has no GID"},
      {.name = "hardware_on_another_network_than_tcp",
       .seen = "a management network for TCP, as most clusters have it",
       .input = {.devices = {roce("mlx5_0", pairs(0, {{"::ffff:192.168.1.1", 3}})), soft0({{"::ffff:10.0.0.1", 2}})},
                 .interfaces = {interface(2, "eth0", {"::ffff:10.0.0.1"}),
                                interface(3, "ens1", {"::ffff:192.168.1.1"})},
                 .route = route("::ffff:10.0.0.1", "10.0.0.2")},
       .device = "mlx5_0",
       .index = 1,
       .says = "the route to 10.0.0.2 uses eth0 from ::ffff:10.0.0.1, which is not an address of this port"},
      {.name = "sriov_vf_is_a_device_of_its_own",
       .seen = "docs.nvidia.com/networking: PF and each VF have GID tables of their own",
       .input = {.devices = {roce("mlx5_0", pairs(0, {{"::ffff:10.0.0.1", 2}})),
                             roce("mlx5_4", pairs(0, {{"fe80::5054:ff:fe00:4", 9}, {"::ffff:10.0.0.14", 9}}))},
                 .interfaces = {interface(2, "ens1f0", {"::ffff:10.0.0.1"}),
                                interface(9, "ens1f0v3", {"fe80::5054:ff:fe00:4", "::ffff:10.0.0.14"})},
                 .route = route("::ffff:10.0.0.14", "10.0.0.20")},
       .device = "mlx5_4",
       .index = 3},
      {.name = "rxe_link_local_first",
       .seen = "rxe",
       .input = {.devices = {roce("rxe0", {v2(0, kLinkLocalOfMac, 2), v2(1, "::ffff:10.0.2.15", 2)})},
                 .interfaces = {interface(2, "eth0", {"::ffff:10.0.2.15"}, kMac)}},
       .device = "rxe0",
       .index = 1},
      {.name = "two_rxe_devices_on_a_veth_pair",
       .seen = "rxe",
       .input = {.devices = {roce("rxe_b", {v2(0, "fe80::b", 6), v2(1, "::ffff:10.2.0.2", 6)}),
                             roce("rxe_a", {v2(0, "fe80::a", 5), v2(1, "::ffff:10.2.0.1", 5)})},
                 .interfaces = {interface(5, "va", {"fe80::a", "::ffff:10.2.0.1"}),
                                interface(6, "vb", {"fe80::b", "::ffff:10.2.0.2"})},
                 .route = route("::ffff:10.2.0.1", "10.2.0.2")},
       .device = "rxe_a",
       .index = 1,
       .says = "chose rxe_a port 1 GID 1 ::ffff:10.2.0.1 (RoCE v2): the route to 10.2.0.2 uses va, and this GID is "
               "the address of that interface"},
  };
}

std::vector<Layout> ipv6_layouts() {
  const auto link_local_only = roce("mlx5_0", pairs(0, {{kLinkLocalOfMac, 2}}));
  const std::vector no_ip = {interface(2, "ens1", {}, kMac), interface(3, "eth0", {"::ffff:10.0.0.1"})};
  return {
      {.name = "ipv6_only",
       .seen = "github.com/uccl-project/uccl/pull/803 (bnxt_re)",
       .input = {.devices = {roce("bnxt_re0", pairs(0, {{"fe80::9e63:1", 2}, {"fd93:16d3:59b6::1", 2}}))},
                 .interfaces = {interface(2, "ens1", {"fe80::9e63:1", "fd93:16d3:59b6::1"})},
                 .route = route("fd93:16d3:59b6::1", "fd93:16d3:59b6::2")},
       .device = "bnxt_re0",
       .index = 3},
      {.name = "ipv6_only_no_peer_yet",
       .seen = "github.com/openucx/ucx/pull/10939",
       .input = {.devices = {roce("bnxt_re0", pairs(0, {{"fe80::9e63:1", 2}, {"fd93:16d3:59b6::1", 2}}))},
                 .interfaces = {interface(2, "ens1", {"fe80::9e63:1", "fd93:16d3:59b6::1"})}},
       .device = "bnxt_re0",
       .index = 3},
      {.name = "dual_stack_follows_the_route",
       .seen = kNvidia,
       .input = {.devices = {roce("mlx5_0", pairs(0, {{"::ffff:10.0.0.1", 2}, {"2001:db8::1", 2}}))},
                 .interfaces = {interface(2, "ens1", {"::ffff:10.0.0.1", "2001:db8::1"})},
                 .route = route("2001:db8::1", "2001:db8::2")},
       .device = "mlx5_0",
       .index = 3},
      {.name = "link_local_peer",
       .seen = kNvidia,
       .input = {.devices = {roce("mlx5_0", pairs(0, {{kLinkLocalOfMac, 2}, {"::ffff:10.0.0.1", 2}}))},
                 .interfaces = {interface(2, "ens1", {kLinkLocalOfMac, "::ffff:10.0.0.1"}, kMac)},
                 .route = route(kLinkLocalOfMac, "fe80::2%ens1", 2)},
       .device = "mlx5_0",
       .index = 1,
       .says = "the route to fe80::2%ens1 uses ens1, and this GID is the address of that interface"},
      {.name = "link_local_only",
       .seen = "docs.nvidia.com/networking: the default GIDs are set even where the interface has no address",
       .input = {.devices = {link_local_only, soft0({{"::ffff:10.0.0.1", 3}})},
                 .interfaces = no_ip,
                 .route = route("::ffff:10.0.0.1", "10.0.0.2")},
       .device = "mlx5_0",
       .index = 1},
      {.name = "link_local_only_gives_way_to_a_routable_one",
       .seen = "as above",
       .input = {.devices = {link_local_only, roce("mlx5_1", pairs(0, {{"::ffff:10.0.0.1", 3}}))}, .interfaces = no_ip},
       .device = "mlx5_1",
       .index = 1},
      {.name = "ipv4_link_local_is_no_better",
       .seen = "RFC 3927",
       .input = {.devices = {roce("mlx5_0", {v2(0, "::ffff:169.254.3.1", 2), v2(1, "2001:db8::1", 2)})},
                 .interfaces = {interface(2, "ens1", {"::ffff:169.254.3.1", "2001:db8::1"})}},
       .device = "mlx5_0",
       .index = 1},
  };
}

std::vector<Layout> container_layouts() {
  return {
      {.name = "container_table_does_not_begin_at_0",
       .seen = "github.com/NVIDIA/nccl/pull/1587",
       .input = {.devices = {roce("mlx5_0", pairs(6, {{"::ffff:11.0.4.1", 4}, {"fe80::e4ea:71ff:feb9:4970", 4}}))},
                 .interfaces = {lo(), interface(4, "net1", {"::ffff:11.0.4.1", "fe80::e4ea:71ff:feb9:4970"})},
                 .route = route("::ffff:11.0.4.1", "11.0.4.2")},
       .device = "mlx5_0",
       .index = 7},
      {.name = "container_with_two_macvlans",
       .seen = "github.com/NVIDIA/nccl/issues/1573",
       .input = {.devices = {roce("mlx5_0", pairs(4, {{"fe80::a4ed:ccff:fe8b:1994", 4}, {"::ffff:10.152.0.12", 4}})),
                             roce("mlx5_1", pairs(4, {{"fe80::9459:9bff:fe54:7704", 5}, {"::ffff:10.152.4.12", 5}}))},
                 .interfaces = {lo(), interface(4, "net1", {"::ffff:10.152.0.12"}),
                                interface(5, "net2", {"::ffff:10.152.4.12"})},
                 .route = route("::ffff:10.152.4.12", "10.152.4.13")},
       .device = "mlx5_1",
       .index = 7},
      {.name = "container_sees_entries_of_the_host_and_of_others",
       .seen = "github.com/NVIDIA/nccl/pull/1587, devices in shared mode",
       .input = {.devices = {roce(
                     "mlx5_0", pairs(0, {{"::ffff:10.0.0.1", 2}, {"::ffff:10.0.4.1", 31}, {"::ffff:10.0.4.2", 37}}))},
                 .interfaces = {lo(), interface(37, "net1", {"::ffff:10.0.4.2"})},
                 .route = route("::ffff:10.0.4.2", "10.0.4.9")},
       .device = "mlx5_0",
       .index = 5},
      {.name = "container_without_the_address",
       .seen = "a container on a bridge, with the host's device passed in",
       .input = {.devices = {roce("mlx5_0", pairs(0, {{"fe80::1", 2}, {"::ffff:10.0.0.1", 2}})),
                             soft0({{"::ffff:172.17.0.2", 2}})},
                 // In its own namespace, its eth0 has the same index as the NIC outside.
                 .interfaces = {lo(), interface(2, "eth0", {"::ffff:172.17.0.2"}, {2, 0x42, 0xac, 0x11, 0, 2})},
                 .route = route("::ffff:172.17.0.2", "10.0.0.2")},
       .device = "soft0",
       .index = 3,
       .says = "not usable: mlx5_0 port 1 has no GID that could reach 10.0.0.2: it has index 0 fe80::1 (RoCE v1) of "
               "another network namespace"},
      {.name = "container_shares_the_address_of_another",
       .seen = "two namespaces may have one address on one NIC, in different VLANs",
       .input = {.devices = {roce("mlx5_0", {v2(3, "::ffff:10.0.0.5", 31), v2(5, "::ffff:10.0.0.5", 37)})},
                 .interfaces = {lo(), interface(37, "net1", {"::ffff:10.0.0.5"})},
                 .route = route("::ffff:10.0.0.5", "10.0.0.6")},
       .device = "mlx5_0",
       .index = 5},
      {.name = "interfaces_that_the_system_does_not_tell",
       .seen = "a sandbox without netlink",
       .input = {.devices = {roce("mlx5_0", pairs(0, {{"fe80::1", 2}, {"::ffff:10.0.0.1", 2}}))},
                 .route = route("::ffff:10.0.0.1", "10.0.0.2")},
       .device = "mlx5_0",
       .index = 3,
       .says = "the route to 10.0.0.2 has this source address"},
      {.name = "entries_without_an_interface",
       .seen = "libibverbs reports 0 where the kernel does not say",
       .input = {.devices = {roce("mlx5_0", pairs(0, {{"fe80::1", 0}, {"::ffff:10.0.0.1", 0}}))},
                 .interfaces = {lo(), interface(2, "ens1", {"::ffff:10.0.0.1"})},
                 .route = route("::ffff:10.0.0.1", "10.0.0.2")},
       .device = "mlx5_0",
       .index = 3},
  };
}

std::vector<Layout> infiniband_layouts() {
  const auto hca = [](const char* name, std::initializer_list<const char*> port_gids) {
    std::vector<std::vector<GidEntry>> ports;
    for (const char* each : port_gids) ports.push_back({plain(0, each)});
    return device(name, Transport::kInfiniBand, ports);
  };
  const auto mlx5_0 = hca("mlx5_0", {"fe80::506b:4b03:6a:da10"});
  const auto two_ports = hca("mlx5_0", {"fe80::506b:4b03:6a:da10", "fe80::506b:4b03:6a:da11"});
  const auto ib1 = ipoib(9, "ib1", "::ffff:10.3.0.1", "fe80::506b:4b03:6a:da11");
  const auto eth0 = interface(2, "eth0", {"::ffff:10.0.0.1"});
  auto vpi = hca("mlx5_0", {"fe80::506b:4b03:6a:da10", "fe80::"});
  vpi.ports[1].transport = Transport::kRoce;
  vpi.ports[1].gids = pairs(0, {{"::ffff:10.0.0.1", 2}});
  return {
      {.name = "infiniband_default_gid",
       .seen = "InfiniBand without IP: TCP goes by Ethernet",
       .input = {.devices = {mlx5_0}, .interfaces = {eth0}, .route = route("::ffff:10.0.0.1", "10.0.0.2")},
       .device = "mlx5_0",
       .index = 0,
       .says = "InfiniBand needs no IP route to 10.0.0.2"},
      {.name = "infiniband_port_of_the_ipoib_interface",
       .seen = "RFC 4391, 9.1.1",
       .input = {.devices = {two_ports}, .interfaces = {eth0, ib1}, .route = route("::ffff:10.3.0.1", "10.3.0.2")},
       .device = "mlx5_0",
       .port = 2,
       .index = 0,
       .says = "uses ib1, and this GID belongs to that interface"},
      {.name = "infiniband_across_subnets",
       .seen = "a subnet prefix of its own, set by the subnet manager",
       .input = {.devices = {hca("mlx5_0", {"fec0:0:0:1:506b:4b03:6a:da10"})}},
       .device = "mlx5_0",
       .index = 0},
      {.name = "infiniband_with_an_alias_gid",
       .seen = "SR-IOV: alias GUIDs from index 1 on",
       .input = {.devices = {device("mlx4_0", Transport::kInfiniBand,
                                    {{plain(0, "fe80::2:c903:0:1"), plain(1, "fec0::1405:4fff:0:1")}})}},
       .device = "mlx4_0",
       .index = 0},
      {.name = "infiniband_beside_ethernet_on_the_route",
       .seen = "a mixed machine",
       .input = {.devices = {mlx5_0, roce("mlx5_2", pairs(0, {{"::ffff:10.0.0.1", 2}}))},
                 .interfaces = {eth0},
                 .route = route("::ffff:10.0.0.1", "10.0.0.2")},
       .device = "mlx5_2",
       .index = 1},
      {.name = "one_card_two_link_layers",
       .seen = "VPI cards",
       .input = {.devices = {vpi}, .interfaces = {eth0}, .route = route("::ffff:10.0.0.1", "10.0.0.2")},
       .device = "mlx5_0",
       .port = 2,
       .index = 1},
  };
}

std::vector<Layout> iwarp_layouts() {
  const auto siw = [](unsigned interface) {
    return device("siw0", Transport::kIwarp, {{plain(0, kMacGid, interface)}});
  };
  const auto eth0 = interface(2, "eth0", {"::ffff:10.0.0.1"}, kMac);
  const auto to_peer = route("::ffff:10.0.0.1", "10.0.0.2");
  return {
      {.name = "siw_by_its_mac_address",
       .seen = "siw",
       .input = {.devices = {siw(0)}, .interfaces = {eth0}, .route = to_peer, .connect_by = ConnectBy::kRdmaCm},
       .device = "siw0",
       .index = 0,
       .says = "uses eth0, and this GID belongs to that interface"},
      {.name = "siw_by_its_interface",
       .seen = "newer kernels tell it",
       .input = {.devices = {siw(2)}, .interfaces = {eth0}, .route = to_peer, .connect_by = ConnectBy::kRdmaCm},
       .device = "siw0",
       .index = 0},
      {.name = "siw_without_rdma_cm",
       .seen = "siw",
       .input = {.devices = {siw(0), soft0({{"::ffff:10.0.0.1", 2}})}, .interfaces = {eth0}, .route = to_peer},
       .device = "soft0",
       .index = 3,
       .says = "not usable: port 1 of siw0 is an iWARP device, which only rdma_cm can connect"},
      {.name = "siw_where_either_way_will_do",
       .seen = "siw",
       .input = {.devices = {siw(2), soft0({{"::ffff:10.0.0.1", 2}})},
                 .interfaces = {eth0},
                 .route = to_peer,
                 .connect_by = ConnectBy::kEither},
       .device = "siw0",
       .index = 0},
      {.name = "siw_off_the_route_is_no_use_either_way",
       .seen = "siw on a host that talks to itself",
       .input = {.devices = {siw(2), soft0({{"::ffff:10.0.0.1", 2}})},
                 .interfaces = {eth0, interface(1, "lo", {"::ffff:127.0.0.1"})},
                 .route = route("::ffff:127.0.0.1", "127.0.0.1"),
                 .connect_by = ConnectBy::kEither},
       .device = "soft0",
       .index = 5,
       .says = "port 1 of siw0 is not on the route to 127.0.0.1"},
      {.name = "rdma_cm_goes_by_the_route",
       .seen = "rdma_resolve_addr(3)",
       .input = {.devices = {roce("mlx5_0", pairs(0, {{"::ffff:192.168.1.1", 3}})), soft0({{"::ffff:10.0.0.1", 2}})},
                 .interfaces = {eth0, interface(3, "ens1", {"::ffff:192.168.1.1"})},
                 .route = to_peer,
                 .connect_by = ConnectBy::kRdmaCm},
       .device = nullptr,
       .says = "port 1 of mlx5_0 is not on the route to 10.0.0.2, which rdma_cm uses, port 1 of soft0 is a software "
               "device"},
      {.name = "a_transport_of_its_own",
       .seen = "EFA and usNIC report an unspecified transport",
       .input = {.devices = {device("efa_0", Transport::kUnknown, {{plain(0, "fe80::1")}}),
                             soft0({{"::ffff:10.0.0.1", 2}})},
                 .interfaces = {eth0}},
       .device = "soft0",
       .index = 3,
       .says = "port 1 of efa_0 is not an InfiniBand, RoCE or iWARP device"},
  };
}

std::vector<Layout> local_layouts() {
  const auto here = route("::ffff:127.0.0.1", "127.0.0.1");
  const auto eth0 = interface(2, "eth0", {"::ffff:10.0.0.1"});
  return {
      {.name = "soft0_where_no_interface_is_up",
       .seen = "",
       .input = {.devices = {down(soft0({}))}, .interfaces = {}, .route = here},
       .device = nullptr,
       .says = "port 1 of soft0 is DOWN; none of its network interfaces is up: bring one up, for example by `ip link "
               "set lo "
               "up`"},
      {.name = "soft0_only",
       .seen = "soft0",
       .input = {.devices = {soft0({{"::ffff:10.0.0.1", 2}})}, .interfaces = {lo(), eth0}, .route = here},
       .device = "soft0",
       .index = 5,
       .says = "127.0.0.1 is this host; it is software, and reaches other hosts by TCP"},
      {.name = "soft0_serves_this_host",
       .seen = "soft0, a server that listens at 127.0.0.1",
       .input = {.devices = {soft0({{"::ffff:10.0.0.1", 2}})},
                 .interfaces = {lo(), eth0},
                 .route = PeerRoute{.source = here.source, .peer = here.peer, .of_clients = true}},
       .device = "soft0",
       .index = 5,
       .says = "clients of 127.0.0.1 are on this host; it is software, and reaches other hosts by TCP"},
      {.name = "soft0_does_not_offer_loopback_to_others",
       .seen = "soft0",
       .input = {.devices = {soft0({})}, .interfaces = {lo(), eth0}, .route = route("::ffff:10.0.0.1", "10.0.0.2")},
       .device = "soft0",
       .index = 1},
      {.name = "loopback_on_a_machine_with_hardware",
       .seen = "RoCE and InfiniBand devices reach themselves",
       .input = {.devices = {roce("mlx5_0", pairs(0, {{"::ffff:10.0.0.1", 2}})), soft0({{"::ffff:10.0.0.1", 2}})},
                 .interfaces = {lo(), eth0},
                 .route = here},
       .device = "mlx5_0",
       .index = 1,
       .says = "127.0.0.1 is this host, which the device reaches by its own address"},
      {.name = "empty_table",
       .seen = "an Ethernet interface that is down takes its entries with it (kernel)",
       .input = {.devices = {roce("mlx5_0", {}), soft0({{"::ffff:10.0.0.1", 2}})}, .interfaces = {lo(), eth0}},
       .device = "soft0",
       .index = 3,
       .says = "mlx5_0 port 1 has no GID: its GID table is empty; give the network interface an address"},
      {.name = "a_device_that_cannot_be_opened",
       .seen = "a container without the device's node",
       .input = {.devices = {{.name = "mlx5_0", .unusable = "cannot open mlx5_0"}, soft0({{"::ffff:10.0.0.1", 2}})},
                 .interfaces = {lo(), eth0}},
       .device = "soft0",
       .index = 3,
       .says = "not usable: cannot open mlx5_0"},
  };
}

std::vector<Layout> explicit_layouts() {
  const std::vector devices = {roce("mlx5_0", pairs(0, {{"fe80::1", 2}, {"::ffff:10.0.0.1", 2}})),
                               roce("mlx5_1", {v2(0, "::ffff:192.168.1.1", 3)}), down(roce("mlx5_2", {}))};
  const std::vector interfaces = {interface(2, "ens1", {"fe80::1", "::ffff:10.0.0.1"}),
                                  interface(3, "ens2", {"::ffff:192.168.1.1"})};
  const auto with = [&](const DeviceOptions& options) {
    return AddressingInput{.devices = devices,
                           .interfaces = interfaces,
                           .route = route("::ffff:10.0.0.1", "10.0.0.2"),
                           .options = options};
  };
  return {
      {.name = "explicit_name",
       .seen = "",
       .input = with({.name = "mlx5_1"}),
       .device = "mlx5_1",
       .index = 0,
       .says = "chose mlx5_1 port 1 as requested"},
      {.name = "explicit_index",
       .seen = "",
       .input = with({.gid_index = 0}),
       .device = "mlx5_0",
       .index = 0,
       .says = "its index was given"},
      {.name = "explicit_index_of_an_empty_entry",
       .seen = "",
       .input = with({.name = "mlx5_1", .gid_index = 7}),
       .device = "mlx5_1",
       .says = "GID index 7 of mlx5_1 port 1 is empty; it has index 0 ::ffff:192.168.1.1 (RoCE v2)"},
      {.name = "explicit_type",
       .seen = "",
       .input = with({.gid_type = GidType::kRoceV1}),
       .device = "mlx5_0",
       .index = 2},
      {.name = "explicit_type_absent",
       .seen = "",
       .input = with({.name = "mlx5_1", .gid_type = GidType::kRoceV1}),
       .device = "mlx5_1",
       .says = "mlx5_1 port 1 has no RoCE v1 GID: it has index 0 ::ffff:192.168.1.1 (RoCE v2)"},
      {.name = "explicit_port_that_is_not_there",
       .seen = "",
       .input = with({.name = "mlx5_1", .port = 2}),
       .device = nullptr,
       .says = "mlx5_1 has ports 1 to 1, not 2"},
      {.name = "explicit_name_of_a_device_that_is_down",
       .seen = "",
       .input = with({.name = "mlx5_2"}),
       .device = nullptr,
       .says = "port 1 of mlx5_2 is DOWN; check the cable"},
      {.name = "unknown_name",
       .seen = "",
       .input = with({.name = "mlx5_9"}),
       .device = nullptr,
       .says = "this host has no RDMA device \"mlx5_9\"; its devices: mlx5_0, mlx5_1, mlx5_2"},
  };
}

std::vector<Layout> all_layouts() {
  std::vector<Layout> all;
  for (const auto& some : {ethernet_layouts(), ipv6_layouts(), container_layouts(), infiniband_layouts(),
                           iwarp_layouts(), local_layouts(), explicit_layouts()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

const PortFacts& chosen_port(const AddressingInput& input, const AddressChoice& choice) {
  return input.devices[choice.device].ports[choice.port - 1U];
}

class EachLayout : public ::testing::TestWithParam<Layout> {};

TEST_P(EachLayout, GivesTheExpectedChoice) {
  const Layout& layout = GetParam();
  const auto choice = choose_address(layout.input);
  if (layout.device == nullptr) {
    ASSERT_FALSE(choice) << choice->explanation;
    EXPECT_THAT(choice.error().context, HasSubstr(layout.says));
    return;
  }
  ASSERT_TRUE(choice) << choice.error().message();
  EXPECT_EQ(layout.input.devices[choice->device].name, layout.device);
  EXPECT_EQ(choice->port, layout.port);
  EXPECT_THAT(choice->explanation, HasSubstr(layout.says));
  EXPECT_EQ(choice->explanation.find('\n'), std::string::npos);
  const auto gids = choose_gids(layout.input, chosen_port(layout.input, *choice));
  EXPECT_EQ(gids ? gids->gids.front().index : -1, layout.index) << choice->explanation;
  EXPECT_EQ(gids.code(), gids ? std::error_code() : make_error_code(Errc::kNoUsableGid));
}

INSTANTIATE_TEST_SUITE_P(Addressing, EachLayout, ::testing::ValuesIn(all_layouts()),
                         [](const auto& layout) { return layout.param.name; });

TEST(Addressing, OffersTheBestOfEachKind) {
  const AddressingInput input{
      .devices = {roce("mlx5_0", pairs(0, {{"fe80::1", 0}, {"::ffff:10.0.0.1", 0}, {"::ffff:10.0.0.2", 0}}))},
      .route = route("::ffff:10.0.0.2", "10.0.0.9")};
  const auto choice = choose_gids(input, input.devices[0].ports[0]);
  ASSERT_TRUE(choice) << choice.error().message();
  std::vector<int> indexes;
  for (const GidEntry& entry : choice->gids) indexes.push_back(entry.index);
  EXPECT_EQ(indexes, (std::vector{5, 4, 1, 0}));
}

TEST(Addressing, ErrorsHaveTheirCodes) {
  AddressingInput input{.devices = {down(roce("mlx5_0", {}))}};
  EXPECT_EQ(choose_address(input).code(), Errc::kNoActivePort);
  input.options.port = 3;
  EXPECT_EQ(choose_address(input).code(), Errc::kInvalidArgument);
  input.options = {.name = "other"};
  EXPECT_EQ(choose_address(input).code(), Errc::kNoDevice);
  EXPECT_EQ(choose_address({}).code(), Errc::kNoDevice);
  EXPECT_EQ(choose_address({.devices = {{.name = "odd"}}}).code(), Errc::kNoActivePort);
}

TEST(Addressing, AGivenIndexIsOfferedAlone) {
  const AddressingInput input{.devices = {roce("mlx5_0", pairs(0, {{"fe80::1", 0}, {"::ffff:10.0.0.1", 0}}))},
                              .options = {.gid_index = 1}};
  const auto choice = choose_gids(input, input.devices[0].ports[0]);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->gids.size(), 1U);
}

}  // namespace
}  // namespace rdmacomm
