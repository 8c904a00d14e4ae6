#include "verbs/describe.h"

#include <gtest/gtest.h>

namespace rdmacomm::verbs {
namespace {

TEST(Describe, NamesQueuePairStates) {
  EXPECT_EQ(to_text(IBV_QPS_RESET), "RESET");
  EXPECT_EQ(to_text(IBV_QPS_INIT), "INIT");
  EXPECT_EQ(to_text(IBV_QPS_RTR), "RTR");
  EXPECT_EQ(to_text(IBV_QPS_RTS), "RTS");
  EXPECT_EQ(to_text(IBV_QPS_ERR), "ERR");
  EXPECT_EQ(to_text(IBV_QPS_UNKNOWN), "state 7");
}

TEST(Describe, NamesPortsAndLinks) {
  EXPECT_EQ(to_text(IBV_PORT_ACTIVE), "ACTIVE");
  EXPECT_EQ(to_text(IBV_PORT_DOWN), "DOWN");
  EXPECT_EQ(link_layer_text(IBV_LINK_LAYER_ETHERNET), "Ethernet");
  EXPECT_EQ(link_layer_text(IBV_LINK_LAYER_INFINIBAND), "InfiniBand");
  EXPECT_EQ(link_layer_text(9), "link layer 9");
  EXPECT_EQ(gid_type_text(IBV_GID_TYPE_ROCE_V2), "RoCE v2");
  EXPECT_EQ(gid_type_text(9), "GID type 9");
}

TEST(Describe, MtuIsConvertedBothWays) {
  for (const std::uint32_t bytes : {256U, 512U, 1024U, 2048U, 4096U}) {
    ibv_mtu mtu{};
    ASSERT_TRUE(mtu_from_bytes(bytes, mtu));
    EXPECT_EQ(mtu_bytes(mtu), bytes);
    EXPECT_EQ(to_text(mtu), std::to_string(bytes));
  }
  ibv_mtu mtu{};
  for (const std::uint32_t bytes : {0U, 1U, 128U, 1500U, 8192U, 0xffffffffU}) EXPECT_FALSE(mtu_from_bytes(bytes, mtu));
  EXPECT_EQ(mtu_bytes(static_cast<ibv_mtu>(0)), 0U);
  EXPECT_EQ(mtu_bytes(static_cast<ibv_mtu>(6)), 0U);
}

TEST(Describe, EachCompletionErrorHasACodeAndAdvice) {
  EXPECT_EQ(errc_of(IBV_WC_SUCCESS), Errc::kOk);
  EXPECT_TRUE(completion_advice(Errc::kOk).empty());
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_TM_RNDV_INCOMPLETE; ++status) {
    const Errc code = errc_of(static_cast<ibv_wc_status>(status));
    EXPECT_NE(code, Errc::kOk) << status;
    EXPECT_FALSE(completion_advice(code).empty()) << status;
  }
}

TEST(Describe, CompletionErrorsKeepTheirMeaning) {
  EXPECT_EQ(errc_of(IBV_WC_LOC_LEN_ERR), Errc::kLocalLength);
  EXPECT_EQ(errc_of(IBV_WC_LOC_PROT_ERR), Errc::kLocalProtection);
  EXPECT_EQ(errc_of(IBV_WC_WR_FLUSH_ERR), Errc::kFlushed);
  EXPECT_EQ(errc_of(IBV_WC_REM_ACCESS_ERR), Errc::kRemoteAccess);
  EXPECT_EQ(errc_of(IBV_WC_REM_INV_REQ_ERR), Errc::kRemoteInvalidRequest);
  EXPECT_EQ(errc_of(IBV_WC_RETRY_EXC_ERR), Errc::kRetryExceeded);
  EXPECT_EQ(errc_of(IBV_WC_RNR_RETRY_EXC_ERR), Errc::kRnrRetryExceeded);
  EXPECT_EQ(errc_of(static_cast<ibv_wc_status>(31)), Errc::kCompletionFailed);
}

}  // namespace
}  // namespace rdmacomm::verbs
