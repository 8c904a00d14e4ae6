// Connection management with devices that belong to network interfaces: which device an identifier uses.
#include <gtest/gtest.h>

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

#include "softdev/cm/cm_device.h"
#include "softdev/cm/cm_scene.h"
#include "softdev/host/gid_table.h"
#include "support/own_network.h"

namespace rdmacomm::softdev::test {
namespace {

using rdmacomm::testing::OwnNetwork;

std::vector<DeviceIdentity> devices_on(const std::vector<std::string>& interfaces, bool infiniband = false) {
  std::vector<DeviceIdentity> devices;
  for (unsigned index = 0; index < interfaces.size(); ++index) {
    devices.push_back(
        {.name = default_name(index), .index = index, .infiniband = infiniband, .interface = interfaces[index]});
  }
  return devices;
}

rdma_ucm_query_route_resp route_of(const Channel& channel, std::uint32_t id) {
  rdma_ucm_query command{};
  command.id = id;
  return channel.ask<rdma_ucm_query_route_resp>(RDMA_USER_CM_CMD_QUERY_ROUTE, command);
}

/// The index of the device that an identifier uses; no value: none.
std::optional<unsigned> device_of_id(const Channel& channel, std::uint32_t id) {
  const auto found = route_of(channel, id);
  if (found.port_num == 0) return std::nullopt;
  return static_cast<unsigned>(be64toh(found.node_guid) - device_guid(0));
}

/// Two interfaces, rail0 and rail1, with the addresses 10.9.0.1 and 10.9.1.1, and an address of lo that no device has.
class CmDevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    network.emplace();
    if (!network->why_not().empty()) GTEST_SKIP() << network->why_not();
    network->disable_ipv6();
    network->add_rails();
    network->ip("address add 10.9.9.1/32 dev lo");
  }
  std::optional<OwnNetwork> network;
};

TEST_F(CmDevicesTest, AnIdentifierUsesTheDeviceOfItsAddress) {
  UserCm cm(devices_on({"rail0", "rail1"}));
  const Channel channel(cm);
  for (const unsigned index : {0U, 1U}) {
    const std::string address = "10.9." + std::to_string(index) + ".1";
    const std::uint32_t bound = channel.create(1);
    ASSERT_EQ(channel.bind(bound, ipv4(0, address.c_str())), 0);
    EXPECT_EQ(device_of_id(channel, bound), index);
    const std::uint32_t resolved = channel.create(2);
    ASSERT_EQ(channel.resolve_address(resolved, ipv4(7, address.c_str())), 0);
    channel.expect(CmEventType::kAddressResolved);
    EXPECT_EQ(device_of_id(channel, resolved), index);
  }
}

TEST_F(CmDevicesTest, AnAddressWithoutADeviceIsRefused) {
  UserCm cm(devices_on({"rail0"}));
  const Channel channel(cm);
  for (const char* const address : {"10.9.1.1", "10.9.9.1"}) {
    EXPECT_EQ(channel.bind(channel.create(1), ipv4(0, address)), ENODEV) << address;
    EXPECT_EQ(channel.resolve_address(channel.create(1), ipv4(7, address)), ENODEV) << address;
  }
  EXPECT_EQ(channel.bind(channel.create(1), ipv4(0, "10.9.7.7")), EADDRNOTAVAIL) << "not on this host";
  network->ip("link set rail0 down");
  EXPECT_EQ(channel.bind(channel.create(1), ipv4(0, "10.9.0.1")), EADDRNOTAVAIL) << "while the interface is down";
}

TEST_F(CmDevicesTest, ALoopbackAddressUsesTheFirstDeviceThatIsUp) {
  UserCm cm(devices_on({"rail0", "rail1"}));
  const Channel channel(cm);
  const auto device_for_loopback = [&] {
    const std::uint32_t id = channel.initiator(7);
    EXPECT_EQ(channel.attributes(id, IBV_QPS_INIT).qp_state, unsigned{IBV_QPS_INIT});
    return device_of_id(channel, id);
  };
  EXPECT_EQ(device_for_loopback(), 0U);
  network->ip("link set rail0 down");
  EXPECT_EQ(device_for_loopback(), 1U);
  network->ip("link set rail1 down");
  EXPECT_EQ(device_for_loopback(), 0U) << "none is up";
  UserCm with_loopback(devices_on({"rail0", "lo"}));
  const Channel other(with_loopback);
  EXPECT_EQ(device_of_id(other, other.initiator(7)), 1U) << "it has the address";
}

TEST_F(CmDevicesTest, AListenerAtAnyAddressTakesRequestsForAllDevices) {
  UserCm at_server(devices_on({"rail0", "rail1"}));
  UserCm at_client(devices_on({"rail0", "rail1"}));
  const Channel server(at_server);
  const Channel client(at_client);
  const std::uint32_t listener = server.create(1);
  ASSERT_EQ(server.listen(listener), 0);
  EXPECT_EQ(device_of_id(server, listener), std::nullopt);
  const std::uint16_t port = server.port_of(listener);
  for (const unsigned index : {1U, 0U}) {
    const std::string address = "10.9." + std::to_string(index) + ".1";
    const std::uint32_t id = client.create(2);
    ASSERT_EQ(client.resolve_address(id, ipv4(port, address.c_str())), 0);
    client.expect(CmEventType::kAddressResolved);
    ASSERT_EQ(client.resolve_route(id), 0);
    client.expect(CmEventType::kRouteResolved);
    ASSERT_EQ(client.connect(id, parameters()), 0);
    const auto request = server.expect(CmEventType::kConnectRequest);
    EXPECT_EQ(device_of_id(server, request.id), index);
    const auto attributes = server.attributes(request.id, IBV_QPS_RTR);
    EXPECT_EQ(attributes.ah_attr.grh.sgid_index, 3U) << "the RoCE v2 entry of the address";
    EXPECT_EQ(attributes.ah_attr.grh.dgid[14], index);
  }
}

TEST_F(CmDevicesTest, ConnectionsFailWithoutACarrier) {
  UserCm cm(devices_on({"rail0", "rail1"}));
  const Channel channel(cm);
  const std::uint32_t listener = channel.create(1);
  ASSERT_EQ(channel.bind(listener, ipv4(0, "10.9.1.1")), 0);
  ASSERT_EQ(channel.listen(listener), 0);
  const auto connect_from = [&](const char* source) {
    const std::uint32_t id = channel.create(2);
    EXPECT_EQ(channel.bind(id, ipv4(0, source)), 0);
    EXPECT_EQ(channel.resolve_address(id, ipv4(channel.port_of(listener), "10.9.1.1")), 0);
    channel.expect(CmEventType::kAddressResolved);
    EXPECT_EQ(channel.resolve_route(id), 0);
    channel.expect(CmEventType::kRouteResolved);
    EXPECT_EQ(channel.connect(id, parameters()), 0);
  };
  network->ip("link set rail0_end down");
  connect_from("10.9.0.1");
  channel.expect(CmEventType::kUnreachable, -ENETDOWN);
  network->ip("link set rail1_end down");
  network->ip("link set rail0_end up");
  network->run("timeout 20 sh -c 'until ip link show dev rail0 | grep -q \"state UP\"; do :; done'");
  connect_from("10.9.0.1");
  channel.expect(CmEventType::kRejected, 8);
}

TEST_F(CmDevicesTest, DevicesThatBelongToNoInterfaceServeTheOtherAddresses) {
  UserCm cm(devices_on({"", "rail1", ""}));
  const Channel channel(cm);
  const auto device_at = [&](const char* address) {
    const std::uint32_t id = channel.create(1);
    EXPECT_EQ(channel.bind(id, ipv4(0, address)), 0);
    return device_of_id(channel, id);
  };
  EXPECT_EQ(device_at("10.9.1.1"), 1U);
  EXPECT_EQ(device_at("10.9.0.1"), 0U);
  EXPECT_EQ(device_at("10.9.9.1"), 0U);
}

TEST_F(CmDevicesTest, InfinibandPathsLeadToTheDeviceOfTheAddress) {
  UserCm cm(devices_on({"rail0", "rail1"}, true));
  const Channel channel(cm);
  const std::uint32_t id = channel.create(1);
  ASSERT_EQ(channel.bind(id, ipv4(0, "10.9.0.1")), 0);
  ASSERT_EQ(channel.resolve_address(id, ipv4(7, "10.9.1.1")), 0);
  channel.expect(CmEventType::kAddressResolved);
  ASSERT_EQ(channel.resolve_route(id), 0);
  const auto found = route_of(channel, id);
  EXPECT_EQ(found.node_guid, htobe64(device_guid(0)));
  ASSERT_EQ(found.num_paths, 1U);
  EXPECT_EQ(found.ib_route[0].slid, htobe16(local_lid(0)));
  EXPECT_EQ(found.ib_route[0].dlid, htobe16(local_lid(1)));
  EXPECT_EQ(found.ib_route[0].sgid[15], 0);
  EXPECT_EQ(found.ib_route[0].dgid[15], 1);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
