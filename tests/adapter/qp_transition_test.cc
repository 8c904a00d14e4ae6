#include "adapter/qp_transition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

Gid gid(const char* sixteen_bytes) {
  Gid made{};
  std::memcpy(made.raw.data(), sixteen_bytes, made.raw.size());
  return made;
}
const Gid kIpv4 = gid("\0\0\0\0\0\0\0\0\0\0\xff\xff\x0a\0\0\1");
const Gid kIpv6 = gid("\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\1");
const Gid kSubnetA = gid("\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\1");
const Gid kSubnetB = gid("\xfe\xc0\0\0\0\0\0\1\0\0\0\0\0\0\0\2");

QpPath ethernet() {
  QpPath path;
  path.local = {.qpn = 0x11,
                .psn = 0x123456,
                .link_layer = IBV_LINK_LAYER_ETHERNET,
                .gid_type = IBV_GID_TYPE_ROCE_V2,
                .gid = kIpv4,
                .mtu_bytes = 4096,
                .max_read_depth = 16};
  path.remote = path.local;
  path.remote.qpn = 0x22;
  path.remote.psn = 0x654321;
  path.remote.mtu_bytes = 1024;
  path.remote.max_read_depth = 4;
  path.gid_index = 3;
  path.port = 2;
  return path;
}

QpPath infiniband() {
  QpPath path = ethernet();
  path.local.link_layer = path.remote.link_layer = IBV_LINK_LAYER_INFINIBAND;
  path.local.gid_type = path.remote.gid_type = IBV_GID_TYPE_IB;
  path.local.gid = path.remote.gid = kSubnetA;
  path.local.lid = 7;
  path.remote.lid = 9;
  return path;
}

TEST(QpTransition, ToInitAllowsTheAccessThatTheDeviceSupports) {
  AdapterConfig config;
  config.pkey_index = 5;
  const QpTransition with = QpTransition::to_init(config, 2, true);
  EXPECT_EQ(with.from, IBV_QPS_RESET);
  EXPECT_EQ(with.to, IBV_QPS_INIT);
  EXPECT_EQ(with.attributes.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(with.attributes.port_num, 2);
  EXPECT_EQ(with.attributes.pkey_index, 5);
  EXPECT_EQ(with.mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  EXPECT_NE(with.attributes.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC, 0U);
  const QpTransition without = QpTransition::to_init(config, 2, false);
  EXPECT_EQ(without.attributes.qp_access_flags,
            static_cast<unsigned>(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE));
}

TEST(QpTransition, ToRtrNamesThePeer) {
  AdapterConfig config;
  config.traffic_class = 106;
  config.service_level = 3;
  config.hop_limit = 12;
  const QpTransition rtr = QpTransition::to_rtr(config, ethernet());
  EXPECT_EQ(rtr.from, IBV_QPS_INIT);
  EXPECT_EQ(rtr.to, IBV_QPS_RTR);
  EXPECT_EQ(rtr.mask, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
  EXPECT_EQ(rtr.attributes.path_mtu, IBV_MTU_1024);  // the smaller one
  EXPECT_EQ(rtr.attributes.dest_qp_num, 0x22U);
  EXPECT_EQ(rtr.attributes.rq_psn, 0x654321U);
  EXPECT_EQ(rtr.attributes.max_dest_rd_atomic, 16);
  EXPECT_EQ(rtr.attributes.min_rnr_timer, 12);
  const ibv_ah_attr& handle = rtr.attributes.ah_attr;
  EXPECT_EQ(handle.is_global, 1);
  EXPECT_EQ(handle.port_num, 2);
  EXPECT_EQ(handle.sl, 3);
  EXPECT_EQ(handle.grh.sgid_index, 3);
  EXPECT_EQ(handle.grh.traffic_class, 106);
  EXPECT_EQ(handle.grh.hop_limit, 12);
  EXPECT_EQ(std::memcmp(&handle.grh.dgid, &kIpv4, sizeof(kIpv4)), 0);
}

TEST(QpTransition, ToRtsTakesTheSmallerReadDepth) {
  AdapterConfig config;
  config.max_read_depth = 16;
  QpPath path = ethernet();
  const QpTransition rts = QpTransition::to_rts(config, path);
  EXPECT_EQ(rts.from, IBV_QPS_RTR);
  EXPECT_EQ(rts.to, IBV_QPS_RTS);
  EXPECT_EQ(rts.mask, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                          IBV_QP_MAX_QP_RD_ATOMIC);
  EXPECT_EQ(rts.attributes.sq_psn, 0x123456U);
  EXPECT_EQ(rts.attributes.timeout, 14);
  EXPECT_EQ(rts.attributes.retry_cnt, 7);
  EXPECT_EQ(rts.attributes.rnr_retry, 7);
  EXPECT_EQ(rts.attributes.max_rd_atomic, 4);
  path.remote.max_read_depth = 1'000'000;  // a peer may send any value
  EXPECT_EQ(QpTransition::to_rts(config, path).attributes.max_rd_atomic, 16);
}

TEST(QpTransition, ToErrorStartsAnywhere) {
  const QpTransition error = QpTransition::to_error();
  EXPECT_FALSE(error.from.has_value());
  EXPECT_EQ(error.to, IBV_QPS_ERR);
  EXPECT_EQ(error.mask, IBV_QP_STATE);
  EXPECT_EQ(error.to_text(), "any state -> ERR");
}

TEST(QpTransition, TextShowsTheValuesOfItsMaskOnly) {
  const std::string rtr = QpTransition::to_rtr({}, ethernet()).to_text();
  EXPECT_THAT(rtr, HasSubstr("INIT -> RTR"));
  EXPECT_THAT(rtr, HasSubstr("MTU 1024"));
  EXPECT_THAT(rtr, HasSubstr("GID index 3"));
  EXPECT_EQ(rtr.find("retry_count"), std::string::npos);
  const std::string rts = QpTransition::to_rts({}, ethernet()).to_text();
  EXPECT_THAT(rts, HasSubstr("timeout code 14, retry_count 7, rnr_retry 7"));
}

TEST(QpPath, EthernetAlwaysNeedsAGlobalRoute) {
  QpPath path = ethernet();
  path.local.lid = path.remote.lid = 7;
  EXPECT_TRUE(path.needs_global_route());
}

TEST(QpPath, InfinibandNeedsAGlobalRouteBetweenSubnetsOrWithoutALid) {
  QpPath path = infiniband();
  EXPECT_FALSE(path.needs_global_route());
  EXPECT_EQ(QpTransition::to_rtr({}, path).attributes.ah_attr.is_global, 0);
  EXPECT_EQ(QpTransition::to_rtr({}, path).attributes.ah_attr.dlid, 9);
  path.remote.gid = kSubnetB;
  EXPECT_TRUE(path.needs_global_route());
  EXPECT_EQ(QpTransition::to_rtr({}, path).attributes.ah_attr.is_global, 1);
  path = infiniband();
  path.remote.lid = 0;
  EXPECT_TRUE(path.needs_global_route());
}

TEST(QpPath, MtuIsTheSmallerOfBothEnds) {
  QpPath path = ethernet();
  EXPECT_EQ(path.mtu_bytes(), 1024U);
  path.local.mtu_bytes = 512;
  EXPECT_EQ(path.mtu_bytes(), 512U);
}

TEST(QpPath, TwoEndsOfTheSameKindAreCompatible) {
  EXPECT_TRUE(ethernet().check_compatible().ok());
  EXPECT_TRUE(infiniband().check_compatible().ok());
}

TEST(QpPath, OtherTransportsAreIncompatible) {
  QpPath path = ethernet();
  path.local.transport = Transport::kRoce;
  path.remote.transport = Transport::kSoftware;
  EXPECT_EQ(path.check_compatible().code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(path.check_compatible().error().context, HasSubstr("RoCE and software device"));
}

TEST(QpPath, PartitionsMustBeTheSameAndOneEndAFullMember) {
  const auto checked = [](std::uint16_t local, std::uint16_t remote) {
    QpPath path = infiniband();
    path.local.pkey = local;
    path.remote.pkey = remote;
    return path.check_compatible();
  };
  EXPECT_TRUE(checked(0x8001, 0x8001).ok());
  EXPECT_TRUE(checked(0x8001, 0x0001).ok());
  EXPECT_TRUE(checked(0, 0x8001).ok());  // a device that does not report it
  EXPECT_EQ(checked(0x8001, 0x8002).code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(checked(0x8001, 0x8002).error().context, HasSubstr("local: P_Key 0x8001; peer: P_Key 0x8002"));
  EXPECT_EQ(checked(0x0001, 0x0001).code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(checked(0x0001, 0x0001).error().context, HasSubstr("limited members"));
}

TEST(QpPath, OtherLinkLayerGidTypeOrIpVersionIsIncompatible) {
  QpPath path = ethernet();
  path.remote.link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_EQ(path.check_compatible().code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(path.check_compatible().error().context, HasSubstr("Ethernet and InfiniBand"));

  path = ethernet();
  path.remote.gid_type = IBV_GID_TYPE_ROCE_V1;
  EXPECT_EQ(path.check_compatible().code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(path.check_compatible().error().context, HasSubstr("RoCE v2 and RoCE v1"));

  path = ethernet();
  path.remote.gid = kIpv6;
  const Status versions = path.check_compatible();
  EXPECT_EQ(versions.code(), Errc::kIncompatiblePeer);
  EXPECT_THAT(versions.error().context, HasSubstr("::ffff:10.0.0.1"));
  EXPECT_THAT(versions.error().context, HasSubstr("2001:db8::1"));
}

}  // namespace
}  // namespace rdmacomm
