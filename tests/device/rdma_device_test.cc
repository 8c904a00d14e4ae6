#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "device/device_core.h"
#include "device/native_queue.h"
#include "device/protection_domain_core.h"
#include "rdmacomm/softdev.h"
#include "support/environment_variable.h"
#include "support/fake_verbs.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::FakeDevice;
using rdmacomm::testing::FakeVerbs;
using ::testing::HasSubstr;

class RDMADeviceTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<DeviceCore>> open(const DeviceOptions& options = {}) {
    return DeviceCore::open_from(FakeVerbs::api(), options);
  }
  FakeDevice& device(std::size_t index = 0) { return *fake_.devices[index]; }

  FakeVerbs fake_;
};

TEST_F(RDMADeviceTest, ReadsTheCapabilitiesOfTheDevice) {
  const auto opened = open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  const DeviceCore& rdma = **opened;
  EXPECT_EQ(rdma.name(), "fake0");
  EXPECT_EQ(rdma.port(), 1);
  EXPECT_FALSE(rdma.is_software());
  EXPECT_EQ(rdma.link_layer(), IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(rdma.limits().max_qp_wr, 1024);
  EXPECT_EQ(rdma.limits().max_sge, 8);
  EXPECT_EQ(rdma.limits().max_cqe, 4096);
  EXPECT_EQ(rdma.limits().max_read_depth, 16);
  EXPECT_EQ(rdma.limits().max_read_depth_initiator, 8);
  EXPECT_EQ(rdma.limits().max_message_bytes, 1U << 30);
  EXPECT_EQ(rdma.limits().mtu_bytes, 4096U);
  EXPECT_TRUE(rdma.limits().atomics);
  EXPECT_EQ(rdma.to_text(), "fake0 port 1 (Ethernet, MTU 4096)");
}

TEST_F(RDMADeviceTest, ReadsOptionalCapabilities) {
  device().attributes.max_srq = 5;
  device().attributes.max_srq_wr = 100;
  device().odp.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  device().odp.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_READ;
  const DeviceLimits limits = (*open().value()).limits();
  EXPECT_EQ(limits.max_sge_rd, 2);
  EXPECT_EQ(limits.max_srq, 5);
  EXPECT_EQ(limits.max_srq_wr, 100);
  EXPECT_EQ(limits.atomic_scope, AtomicScope::kDevice);
  EXPECT_EQ(limits.max_service_level, 7);
  const OnDemandPaging& paging = limits.on_demand_paging;
  EXPECT_TRUE(paging.supported && paging.implicit && paging.send && paging.read);
  EXPECT_FALSE(paging.receive || paging.write || paging.atomics);
}

TEST_F(RDMADeviceTest, AbsentCapabilitiesAreReportedAsAbsent) {
  device().attributes.max_sge_rd = 0;  // not reported
  device().attributes.atomic_cap = IBV_ATOMIC_NONE;
  device().ports[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
  const DeviceLimits limits = (*open().value()).limits();
  EXPECT_EQ(limits.max_sge_rd, 8);
  EXPECT_EQ(limits.max_srq, 0);
  EXPECT_EQ(limits.atomic_scope, AtomicScope::kNone);
  EXPECT_FALSE(limits.atomics);
  EXPECT_FALSE(limits.on_demand_paging.supported);
  EXPECT_EQ(limits.max_service_level, 15);
}

TEST_F(RDMADeviceTest, ReportsTheTransportOfItsQueuePairs) {
  EXPECT_EQ((*open().value()).transport(), Transport::kRoce);
  device().ports[0].link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_EQ((*open().value()).transport(), Transport::kInfiniBand);
  device().transport_type = IBV_TRANSPORT_IWARP;
  EXPECT_EQ((*open({.name = "fake0"}).value()).transport(), Transport::kIwarp);
  EXPECT_EQ((*DeviceCore::open({.name = softdev::kDeviceName}).value()).transport(), Transport::kSoftware);
}

TEST_F(RDMADeviceTest, PicksTheDeviceOnTheRouteToThePeer) {
  fake_.devices.push_back(std::make_unique<FakeDevice>("fake1"));
  device(1).clear_gids();
  device(1).add_gid("\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\2", IBV_GID_TYPE_ROCE_V2);
  const PeerRoute route{.source = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2}}, .peer = "10.0.0.9"};
  const auto opened = DeviceCore::open_from(FakeVerbs::api(), {}, {.route = route});
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_EQ((*opened)->name(), "fake1");
  EXPECT_EQ((*opened)->choose_gids(route)->explanation,
            "GID 0 ::ffff:10.0.0.2 (RoCE v2): the route to 10.0.0.9 has this source address");
}

TEST_F(RDMADeviceTest, ReleasesEverything) {
  {
    const auto opened = open();
    ASSERT_TRUE(opened.has_value());
    const auto queue = NativeQueue::create(**opened, {.with_channel = true});
    ASSERT_TRUE(queue);
    EXPECT_EQ(fake_.live(), 4);  // context, PD, completion channel, CQ
  }
  EXPECT_EQ(fake_.live(), 0);
}

TEST_F(RDMADeviceTest, UnknownNameListsTheDevices) {
  fake_.devices.push_back(std::make_unique<FakeDevice>("fake1"));
  const auto opened = open({.name = "mlx5_9"});
  EXPECT_EQ(opened.code(), Errc::kNoDevice);
  EXPECT_EQ(opened.error().context, "this host has no RDMA device \"mlx5_9\"; its devices: fake0, fake1");
}

TEST_F(RDMADeviceTest, NoDeviceAtAll) {
  fake_.devices.clear();
  EXPECT_EQ(open().code(), Errc::kNoDevice);
  EXPECT_THAT(open({.name = "x"}).error().context, HasSubstr("its devices: none"));
}

TEST_F(RDMADeviceTest, PicksTheFirstDeviceWithAnActivePort) {
  fake_.devices.clear();
  fake_.devices.push_back(std::make_unique<FakeDevice>("down0", IBV_PORT_DOWN));
  fake_.devices.push_back(std::make_unique<FakeDevice>("iwarp0"));
  fake_.devices.push_back(std::make_unique<FakeDevice>("good0", IBV_PORT_DOWN));
  device(1).transport_type = IBV_TRANSPORT_IWARP;
  device(2).add_port(IBV_PORT_ACTIVE);
  const auto opened = open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_EQ((*opened)->name(), "good0");
  EXPECT_EQ((*opened)->port(), 2);
}

TEST_F(RDMADeviceTest, WithoutAnActivePortNamesTheStateOfEach) {
  device().ports[0].state = IBV_PORT_DOWN;
  device().add_port(IBV_PORT_INIT);
  for (const DeviceOptions& options : {DeviceOptions{}, DeviceOptions{.name = "fake0"}}) {
    const auto opened = open(options);
    EXPECT_EQ(opened.code(), Errc::kNoActivePort);
    EXPECT_THAT(opened.error().context, HasSubstr("port 1 of fake0 is DOWN, port 2 of fake0 is INIT"));
  }
  EXPECT_EQ(fake_.live(), 0);
}

TEST_F(RDMADeviceTest, AGivenPortMustBeActive) {
  device().add_port(IBV_PORT_DOWN);
  EXPECT_TRUE(open({.name = "fake0", .port = 1}).has_value());
  const auto opened = open({.name = "fake0", .port = 2});
  EXPECT_EQ(opened.code(), Errc::kNoActivePort);
  EXPECT_THAT(opened.error().context, HasSubstr("port 2 of fake0 is DOWN"));
}

TEST_F(RDMADeviceTest, TheCurrentStateOfAPortIsChecked) {
  const auto opened = open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_TRUE((*opened)->check_port().ok());
  device().ports[0].state = IBV_PORT_DOWN;
  EXPECT_EQ((*opened)->check_port().code(), Errc::kNoActivePort);
  EXPECT_THAT((*opened)->check_port().message(), HasSubstr("port 1 of fake0 is DOWN"));
  fake_.fail("query_port", ENODEV);
  EXPECT_THAT((*opened)->check_port().message(), HasSubstr("query port 1 of fake0"));
}

TEST_F(RDMADeviceTest, AMissingPortIsAnInvalidArgument) {
  const auto opened = open({.name = "fake0", .port = 3});
  EXPECT_EQ(opened.code(), Errc::kInvalidArgument);
  EXPECT_EQ(opened.error().context, "fake0 has ports 1 to 1, not 3");
}

TEST_F(RDMADeviceTest, AMissingGidIndexIsAnInvalidArgument) {
  EXPECT_EQ(open({.name = "fake0", .gid_index = 1}).code(), Errc::kInvalidArgument);
  EXPECT_EQ(open({.name = "fake0", .gid_index = -2}).code(), Errc::kInvalidArgument);
  EXPECT_EQ(open({.name = "fake0", .gid_index = 256}).code(), Errc::kInvalidArgument);
  EXPECT_TRUE(open({.name = "fake0", .gid_index = 0}).has_value());
}

TEST_F(RDMADeviceTest, FailuresOfTheSystemAreReturnedAndNothingLeaks) {
  for (const char* verb : {"open_device", "query_device", "query_device_ex", "query_port", "alloc_pd"}) {
    fake_.fail(verb, EACCES);
    const auto opened = open({.name = "fake0"});
    EXPECT_EQ(opened.code(), std::errc::permission_denied) << verb;
    EXPECT_THAT(opened.error().context, HasSubstr("fake0")) << verb;
    EXPECT_EQ(fake_.live(), 0) << verb;
  }
}

TEST_F(RDMADeviceTest, WithoutAnotherProtectionDomainTheErrorNamesTheLimit) {
  const std::shared_ptr<DeviceCore> rdma = open({.name = "fake0"}).value();
  EXPECT_EQ(rdma->limits().max_protection_domains, 50);
  EXPECT_TRUE(ProtectionDomain::create(rdma).has_value());
  fake_.fail("alloc_pd", ENOMEM);
  const auto refused = ProtectionDomain::create(rdma);
  EXPECT_EQ(refused.code(), std::errc::not_enough_memory);
  EXPECT_EQ(refused.error().context, "cannot allocate one more protection domain on " + rdma->to_text() +
                                         ": the device allows 50 protection domains for all processes together; serve "
                                         "fewer peers at a time, or leave HcaConfig::domain empty");
}

TEST_F(RDMADeviceTest, AnUnusableDeviceDoesNotHideTheNext) {
  fake_.devices.push_back(std::make_unique<FakeDevice>("fake1"));
  fake_.fail("open_device", EPERM);
  const auto opened = open();
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ((*opened)->name(), "fake1");
}

TEST_F(RDMADeviceTest, APortWithoutMtuIsRefused) {
  device().ports[0].active_mtu = static_cast<ibv_mtu>(0);
  EXPECT_EQ(open({.name = "fake0"}).code(), Errc::kNotSupported);
}

TEST_F(RDMADeviceTest, ReadDepthsFitIntoTheirEightBits) {
  device().attributes.max_qp_rd_atom = 1000;
  const auto opened = open();
  ASSERT_TRUE(opened.has_value());
  EXPECT_EQ((*opened)->limits().max_read_depth, 255);
}

// Without hardware, open() uses soft0 and logs that once. If hardware exists, it uses the hardware.
TEST(RDMADeviceOpen, FindsADeviceByItself) {
  ::testing::internal::CaptureStderr();
  const auto opened = DeviceCore::open();
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  if (!(*opened)->is_software()) GTEST_SKIP() << "there is hardware here: " << (*opened)->to_text();
  const std::size_t first = log.find("no usable RDMA hardware found");
  EXPECT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find("no usable RDMA hardware found", first + 1), std::string::npos) << log;
  EXPECT_THAT(log, HasSubstr("using soft0"));
}

TEST(RDMADeviceOpen, ByNameLogsNoWarning) {
  ::testing::internal::CaptureStderr();
  const auto opened = DeviceCore::open({.name = softdev::kDeviceName});
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(opened.has_value()) << opened.error().message();
  EXPECT_TRUE((*opened)->is_software());
  EXPECT_EQ(log, "");
  EXPECT_GT((*opened)->limits().max_qp_wr, 0);
  EXPECT_FALSE((*opened)->gids().empty());
  EXPECT_TRUE((*opened)->choose_gid().has_value());
}

TEST(RDMADeviceOpen, UnknownNameListsTheSoftwareDeviceToo) {
  const auto opened = DeviceCore::open({.name = "nope"});
  EXPECT_EQ(opened.code(), Errc::kNoDevice);
  EXPECT_THAT(opened.error().context, HasSubstr("soft0"));
}

/// soft0 keeps registrations and queue pairs in shared memory, which counts as a file.
TEST(RDMADeviceOpen, NamesTheLimitThatKeepsTheSoftwareDeviceFromOpening) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{rlim_t{4} << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const auto opened = DeviceCore::open({.name = softdev::kDeviceName});
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(opened.has_value());
  EXPECT_THAT(opened.error().message(), HasSubstr("ulimit -f"));
}

TEST(RDMADeviceOpen, NamesTheEnvironmentVariableWithAnInvalidValue) {
  for (const auto& [variable, value, shown] :
       {std::tuple{softdev::kTcpVariable, "udp", "RDMACOMM_SOFT0_WIRE is \"udp\"; it may be auto, tcp or memory"},
        std::tuple{softdev::kLateVariable, "60001", "RDMACOMM_SOFT0_LATE is \"60001\"; it may be a number"},
        std::tuple{softdev::kListenVariable, "no\x1b[2J", "RDMACOMM_SOFT0_LISTEN is \"no?[2J\"; it may be IPv4"}}) {
    const testing::EnvironmentVariable invalid(variable, value);
    const auto opened = DeviceCore::open({.name = softdev::kDeviceName});
    ASSERT_FALSE(opened.has_value()) << variable;
    EXPECT_THAT(opened.error().message(), HasSubstr(shown));
  }
}

}  // namespace
}  // namespace rdmacomm
