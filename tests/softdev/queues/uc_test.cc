// Unreliably connected queue pairs: the sender is not informed of messages that are lost or refused at the receiver.
#include <poll.h>

#include <cerrno>
#include <cstring>

#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

const QpSettings kUc{.type = IBV_QPT_UC};

/// A pair with memory at both ends. The sender's memory is filled.
struct UcScene {
  Pair pair{kUc, kUc};
  Memory local{pair.a_node};
  Memory remote{pair.b_node};

  UcScene() { local.fill(3); }
  [[nodiscard]] ibv_send_wr write(std::uint64_t id) const {
    return rdma_request(IBV_WR_RDMA_WRITE, id, remote.address(), remote.mr->rkey);
  }
  [[nodiscard]] bool arrived(std::size_t count) const { return std::memcmp(local.data, remote.data, count) == 0; }
};

TEST(Uc, SendWriteAndWriteWithImmediateArrive) {
  for (const std::uint32_t bytes : {8U, 3000U}) {
    UcScene scene;
    ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(0, 4096), 1), 0);
    ASSERT_EQ(scene.pair.a.post(send_request(2), scene.local.slice(0, bytes)), 0);
    EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(scene.pair.b.next().byte_len, bytes);
    EXPECT_TRUE(scene.arrived(bytes));

    std::memset(scene.remote.data, 0, bytes);
    ASSERT_EQ(scene.pair.a.post(scene.write(3), scene.local.slice(0, bytes)), 0);
    EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(scene.arrived(bytes));

    ASSERT_EQ(scene.pair.b.post_recv(ibv_sge{}, 4), 0);
    ibv_send_wr with_immediate = scene.write(5);
    with_immediate.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    ASSERT_EQ(scene.pair.a.post(with_immediate, scene.local.slice(0, bytes)), 0);
    EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(scene.pair.b.next().opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  }
}

TEST(Uc, AMessageWithoutAReceiveIsLost) {
  UcScene scene;
  ASSERT_EQ(scene.pair.a.post(send_request(1), scene.local.slice(0, 8)), 0);
  const ibv_wc sent = scene.pair.a.next();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.byte_len, 8U);
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(0, 64), 2), 0);
  EXPECT_TRUE(scene.pair.b.poll().empty()) << "it does not come later";
  ASSERT_EQ(scene.pair.a.post(send_request(3), scene.local.slice(0, 16)), 0);
  EXPECT_EQ(scene.pair.b.next().byte_len, 16U) << "the next one does";
}

TEST(Uc, ARequestThatTheTargetRefusesHasNoEffect) {
  UcScene scene;
  ibv_send_wr wrong = scene.write(1);
  wrong.wr.rdma.rkey += 256;
  ASSERT_EQ(scene.pair.a.post(wrong, scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_FALSE(scene.arrived(8));
  EXPECT_EQ(state_of(scene.pair.a), IBV_QPS_RTS);
  EXPECT_EQ(state_of(scene.pair.b), IBV_QPS_RTS);
  EXPECT_FALSE(has_event(scene.pair.b_node));
}

TEST(Uc, ALocalErrorFailsTheRequest) {
  UcScene scene;
  ibv_sge slice = scene.local.slice(0, 8);
  slice.lkey += 256;
  ASSERT_EQ(scene.pair.a.post(scene.write(1), slice), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(state_of(scene.pair.a), IBV_QPS_SQE) << "it goes on receiving";
  ASSERT_EQ(scene.pair.a.post(scene.write(2), scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_WR_FLUSH_ERR);
  ASSERT_EQ(scene.pair.a.to_state(IBV_QPS_RTS), 0);
  ASSERT_EQ(scene.pair.a.post(scene.write(3), scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
}

TEST(Uc, AMessageTooLongForItsReceiveIsTheReceiversError) {
  UcScene scene;
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(0, 4), 1), 0);
  ASSERT_EQ(scene.pair.a.post(send_request(2), scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(state_of(scene.pair.a), IBV_QPS_RTS);
  EXPECT_EQ(state_of(scene.pair.b), IBV_QPS_ERR);
}

TEST(Uc, RequestsToAMissingTargetSucceed) {
  UcScene scene;
  scene.pair.b.qp.reset();
  ASSERT_EQ(scene.pair.a.post(scene.write(1), scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(state_of(scene.pair.a), IBV_QPS_RTS);
}

TEST(Uc, HasNoReadsAndNoAtomics) {
  UcScene scene;
  ibv_send_wr read = scene.write(1);
  read.opcode = IBV_WR_RDMA_READ;
  EXPECT_EQ(scene.pair.a.post(read, scene.local.slice(0, 8)), EINVAL);
  const ibv_send_wr add =
      atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, scene.remote.address(), scene.remote.mr->rkey, 1);
  EXPECT_EQ(scene.pair.a.post(add, scene.local.slice(0, 8)), EINVAL);
}

TEST(Uc, DoesNotConnectToRc) {
  QpSettings hasty;
  hasty.retry_count = 0;
  Pair pair(hasty, kUc);
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  local.fill(1);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey), local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_NE(std::memcmp(local.data, remote.data, 8), 0);
}

TEST(Uc, MovesWithItsOwnAttributes) {
  Node node;
  QpSettings settings = kUc;
  Qp qp(node, settings);
  ASSERT_EQ(qp.to_init(), 0);
  qp.settings.type = IBV_QPT_RC;
  EXPECT_EQ(qp.to_rtr(qp.number()), EINVAL) << "there is no RNR timer to be set";
  qp.settings.type = IBV_QPT_UC;
  ASSERT_EQ(qp.to_rtr(qp.number()), 0);
  qp.settings.type = IBV_QPT_RC;
  EXPECT_EQ(qp.to_rts(), EINVAL) << "there are no retries";
  qp.settings.type = IBV_QPT_UC;
  EXPECT_EQ(qp.to_rts(), 0);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
