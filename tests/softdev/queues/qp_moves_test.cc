// The allowed state changes of a queue pair, and their attributes.
#include "softdev/queues/qp_moves.h"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <utility>

namespace rdmacomm::softdev::test {
namespace {

constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kRtr =
    IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

/// All attributes, each within its range.
ibv_qp_attr attributes() {
  ibv_qp_attr all{};
  all.path_mtu = IBV_MTU_1024;
  return all;
}

int move(ibv_qp_state from, ibv_qp_state to, int mask, ibv_qp_type type = IBV_QPT_RC) {
  return check_move(type, from, to, attributes(), mask | IBV_QP_STATE);
}

TEST(QpMoves, ReachRts) {
  EXPECT_EQ(move(IBV_QPS_RESET, IBV_QPS_INIT, kInit), 0);
  EXPECT_EQ(move(IBV_QPS_INIT, IBV_QPS_RTR, kRtr), 0);
  EXPECT_EQ(move(IBV_QPS_RTR, IBV_QPS_RTS, kRts), 0);
}

TEST(QpMoves, NoStateIsSkipped) {
  EXPECT_EQ(move(IBV_QPS_RESET, IBV_QPS_RTR, kInit | kRtr), EINVAL);
  EXPECT_EQ(move(IBV_QPS_INIT, IBV_QPS_RTS, kRtr | kRts), EINVAL);
  EXPECT_EQ(move(IBV_QPS_ERR, IBV_QPS_RTS, kRts), EINVAL);
}

TEST(QpMoves, EachStateLeadsToErrorAndToReset) {
  for (const ibv_qp_state from :
       {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPS_SQD, IBV_QPS_SQE, IBV_QPS_ERR}) {
    EXPECT_EQ(move(from, IBV_QPS_ERR, 0), 0) << from;
    EXPECT_EQ(move(from, IBV_QPS_RESET, 0), 0) << from;
    EXPECT_EQ(move(from, IBV_QPS_ERR, IBV_QP_TIMEOUT), EINVAL) << from;
  }
}

TEST(QpMoves, EachRequiredAttributeIsNeededAndNoOtherIsTaken) {
  const std::array<std::pair<ibv_qp_state, int>, 3> ways = {
      {{IBV_QPS_RESET, kInit}, {IBV_QPS_INIT, kRtr}, {IBV_QPS_RTR, kRts}}};
  const std::array<ibv_qp_state, 3> to = {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const auto [from, required] = ways[i];
    for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
      if ((required & bit) == 0) continue;
      EXPECT_EQ(move(from, to[i], required & ~bit), EINVAL) << from << ", without " << bit;
    }
    EXPECT_EQ(move(from, to[i], required | IBV_QP_ALT_PATH), EINVAL) << from;
  }
}

TEST(QpMoves, AGivenCurrentStateMustBeRight) {
  ibv_qp_attr named = attributes();
  constexpr int kMask = IBV_QP_STATE | IBV_QP_CUR_STATE | kRts;
  named.cur_qp_state = IBV_QPS_RTR;
  EXPECT_EQ(check_move(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, named, kMask), 0);
  named.cur_qp_state = IBV_QPS_INIT;
  EXPECT_EQ(check_move(IBV_QPT_RC, IBV_QPS_RTR, IBV_QPS_RTS, named, kMask), EINVAL);
}

TEST(QpMoves, ValuesMustBeInTheirRanges) {
  const auto refused = [](ibv_qp_state from, ibv_qp_state to, int mask, auto&& change) {
    ibv_qp_attr changed = attributes();
    change(changed);
    return check_move(IBV_QPT_RC, from, to, changed, mask | IBV_QP_STATE) == EINVAL;
  };
  EXPECT_TRUE(refused(IBV_QPS_RESET, IBV_QPS_INIT, kInit, [](ibv_qp_attr& a) { a.pkey_index = 1; }));
  EXPECT_TRUE(refused(IBV_QPS_INIT, IBV_QPS_RTR, kRtr, [](ibv_qp_attr& a) { a.path_mtu = ibv_mtu{}; }));
  EXPECT_TRUE(refused(IBV_QPS_INIT, IBV_QPS_RTR, kRtr, [](ibv_qp_attr& a) { a.dest_qp_num = 1U << 24; }));
  EXPECT_TRUE(refused(IBV_QPS_INIT, IBV_QPS_RTR, kRtr, [](ibv_qp_attr& a) { a.min_rnr_timer = 32; }));
  EXPECT_TRUE(refused(IBV_QPS_INIT, IBV_QPS_RTR, kRtr, [](ibv_qp_attr& a) { a.max_dest_rd_atomic = 255; }));
  EXPECT_TRUE(refused(IBV_QPS_RTR, IBV_QPS_RTS, kRts, [](ibv_qp_attr& a) { a.timeout = 32; }));
  EXPECT_TRUE(refused(IBV_QPS_RTR, IBV_QPS_RTS, kRts, [](ibv_qp_attr& a) { a.retry_cnt = 8; }));
  EXPECT_TRUE(refused(IBV_QPS_RTR, IBV_QPS_RTS, kRts, [](ibv_qp_attr& a) { a.rnr_retry = 8; }));
  EXPECT_TRUE(refused(IBV_QPS_RTR, IBV_QPS_RTS, kRts, [](ibv_qp_attr& a) { a.max_rd_atomic = 255; }));
}

TEST(QpMoves, OtherKindsHaveOtherAttributes) {
  EXPECT_EQ(move(IBV_QPS_RESET, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY, IBV_QPT_UD), 0);
  EXPECT_EQ(move(IBV_QPS_RESET, IBV_QPS_INIT, kInit, IBV_QPT_UD), EINVAL);
  EXPECT_EQ(move(IBV_QPS_INIT, IBV_QPS_RTR, 0, IBV_QPT_UD), 0);
  EXPECT_EQ(move(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QPT_UD), 0);
  EXPECT_EQ(move(IBV_QPS_RTR, IBV_QPS_RTS, IBV_QP_SQ_PSN, IBV_QPT_UC), 0);
  EXPECT_EQ(move(IBV_QPS_RTR, IBV_QPS_RTS, kRts, IBV_QPT_UC), EINVAL);
}

TEST(QpMoves, AttributesThatAnXrcQueuePairLacksAreIgnored) {
  EXPECT_EQ(without_ignored(kRts, IBV_QPT_RC), kRts);
  EXPECT_EQ(without_ignored(kRtr, IBV_QPT_XRC_SEND), kRtr & ~(IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC));
  EXPECT_EQ(without_ignored(kRts, IBV_QPT_XRC_RECV),
            kRts & ~(IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
  EXPECT_EQ(move(IBV_QPS_INIT, IBV_QPS_RTR, without_ignored(kRtr, IBV_QPT_XRC_SEND), IBV_QPT_XRC_SEND), 0);
  EXPECT_EQ(move(IBV_QPS_RTR, IBV_QPS_RTS, without_ignored(kRts, IBV_QPT_XRC_RECV), IBV_QPT_XRC_RECV), 0);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
