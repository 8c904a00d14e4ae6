// Errors of soft0: the statuses at both ends, the resulting states, and flushes.

#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// Polls the state until it is ERR: the target learns of a broken rule from its serving thread.
void expect_error_state(const Qp& qp) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (state_of(qp) != IBV_QPS_ERR && std::chrono::steady_clock::now() < end) sched_yield();
  EXPECT_EQ(state_of(qp), IBV_QPS_ERR);
}

class RefusedAccess : public ::testing::Test {
 protected:
  Pair pair;
  Memory local{pair.a_node};
  Memory remote{pair.b_node, 4096};
  Memory private_memory{pair.b_node, 4096, IBV_ACCESS_LOCAL_WRITE};

  void expect_refused(ibv_send_wr wr, std::uint32_t bytes = 8, ibv_wc_status status = IBV_WC_REM_ACCESS_ERR) {
    ASSERT_EQ(pair.a.post(wr, local.slice(0, bytes)), 0);
    EXPECT_EQ(pair.a.next().status, status);
    EXPECT_EQ(state_of(pair.a), IBV_QPS_ERR);
    expect_error_state(pair.b);
    ibv_async_event event{};
    ASSERT_EQ(api().get_async_event(pair.b_node.context.get(), &event), 0);
    EXPECT_EQ(event.element.qp, pair.b.qp.get());
    EXPECT_EQ(event.event_type, status == IBV_WC_REM_ACCESS_ERR ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
    api().ack_async_event(&event);
  }
};

TEST_F(RefusedAccess, WrongRkey) {
  expect_refused(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey + 1));
}
TEST_F(RefusedAccess, RkeyFarOutside) {
  expect_refused(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), 0xffffffff));
}
TEST_F(RefusedAccess, RkeyZero) {
  expect_refused(rdma_request(IBV_WR_RDMA_READ, 1, remote.address(), 0));
}
TEST_F(RefusedAccess, PastTheEnd) {
  expect_refused(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(4089), remote.mr->rkey));
}
TEST_F(RefusedAccess, BeforeTheStart) {
  expect_refused(rdma_request(IBV_WR_RDMA_READ, 1, remote.address() - 1, remote.mr->rkey));
}
TEST_F(RefusedAccess, AddressThatWrapsAround) {
  expect_refused(rdma_request(IBV_WR_RDMA_WRITE, 1, UINT64_MAX - 3, remote.mr->rkey));
}
TEST_F(RefusedAccess, WriteWithoutRemoteWrite) {
  expect_refused(rdma_request(IBV_WR_RDMA_WRITE, 1, private_memory.address(), private_memory.mr->rkey));
}
TEST_F(RefusedAccess, ReadWithoutRemoteRead) {
  expect_refused(rdma_request(IBV_WR_RDMA_READ, 1, private_memory.address(), private_memory.mr->rkey));
}
TEST_F(RefusedAccess, AtomicWithoutRemoteAtomic) {
  expect_refused(atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, private_memory.address(), private_memory.mr->rkey, 1));
}
TEST_F(RefusedAccess, AtomicNotAligned) {
  expect_refused(atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, remote.address(4), remote.mr->rkey, 1), 8,
                 IBV_WC_REM_INV_REQ_ERR);
}
TEST_F(RefusedAccess, MemoryOfAnotherProtectionDomain) {
  verbs::PdHandle other(api(), api().alloc_pd(pair.b_node.context.get()));
  verbs::MrHandle mr(api(), api().reg_mr(other.get(), remote.data, 4096, kAllRemote));
  expect_refused(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), mr->rkey));
}
TEST_F(RefusedAccess, DeregisteredMemory) {
  const std::uint32_t rkey = remote.mr->rkey;
  auto good = rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), rkey);
  ASSERT_EQ(pair.a.post(good, local.slice(0, 8)), 0);
  ASSERT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  remote.mr.reset();
  expect_refused(good);
}
TEST_F(RefusedAccess, RegisteredAgain) {
  const std::uint32_t rkey = remote.mr->rkey;
  auto good = rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), rkey);
  ASSERT_EQ(pair.a.post(good, local.slice(0, 8)), 0);
  ASSERT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  remote.mr.reset();
  remote.mr = verbs::MrHandle(api(), api().reg_mr(pair.b_node.pd.get(), remote.data, 4096, kAllRemote));
  EXPECT_NE(remote.mr->rkey, rkey);
  expect_refused(good);
}

TEST(RefusedQueuePair, TheQueuePairsAccessFlagsCountToo) {
  QpSettings closed;
  closed.access = IBV_ACCESS_REMOTE_READ;
  Pair pair({}, closed);
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_READ, 1, remote.address(), remote.mr->rkey), local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey), local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST(LocalErrors, UnregisteredSourceAndDestination) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND}) {
    Pair pair;
    Memory local(pair.a_node);
    Memory remote(pair.b_node);
    ibv_sge slice = local.slice(0, 8);
    slice.lkey += 1;
    ASSERT_EQ(pair.a.post(rdma_request(opcode, 9, remote.address(), remote.mr->rkey), slice), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(state_of(pair.a), IBV_QPS_ERR);
    EXPECT_EQ(state_of(pair.b), IBV_QPS_RTS) << "the target never learns of it";
  }
}

TEST(LocalErrors, ReadIntoMemoryWithoutLocalWrite) {
  Pair pair;
  Memory local(pair.a_node, 4096, IBV_ACCESS_REMOTE_READ);
  Memory remote(pair.b_node);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_READ, 9, remote.address(), remote.mr->rkey), local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_LOC_PROT_ERR);
}

void expect_short_receive(std::uint32_t sent, std::uint32_t posted) {
  Pair pair;
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  ASSERT_EQ(pair.b.post_recv(remote.slice(0, posted), 3), 0);
  ASSERT_EQ(pair.b.post_recv(remote.slice(0, 4096), 4), 0);
  ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, sent)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_INV_REQ_ERR);
  const ibv_wc received = pair.b.next();
  EXPECT_EQ(received.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(received.wr_id, 3U);
  const ibv_wc flushed = pair.b.next();
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.wr_id, 4U);
  expect_error_state(pair.b);
}

TEST(Receives, TooShortForASmallMessage) {
  expect_short_receive(8, 7);
}
TEST(Receives, TooShortForALargeMessage) {
  expect_short_receive(3000, 2999);
}
TEST(Receives, EmptyForAMessage) {
  expect_short_receive(1, 0);
}

void expect_unregistered_receive(std::uint32_t bytes) {
  Pair pair;
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  ibv_sge wrong = remote.slice(0, 4096);
  wrong.lkey += 1;
  ASSERT_EQ(pair.b.post_recv(wrong, 3), 0);
  ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, bytes)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(pair.b.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST(Receives, UnregisteredForASmallMessage) {
  expect_unregistered_receive(8);
}
TEST(Receives, UnregisteredForALargeMessage) {
  expect_unregistered_receive(1000);
}

TEST(Receives, DeregisteredBetweenPostAndArrival) {
  for (const std::uint32_t bytes : {8U, 1000U}) {
    Pair pair;
    Memory local(pair.a_node);
    Memory kept(pair.b_node);
    Memory given_up(pair.b_node);
    ASSERT_EQ(pair.b.post_recv(kept.slice(0, 1000), 3), 0);
    ASSERT_EQ(pair.b.post_recv(given_up.slice(0, 1000), 4), 0);
    given_up.mr.reset();
    ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, bytes)), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
    ASSERT_EQ(pair.a.post(send_request(2), local.slice(0, bytes)), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_REM_OP_ERR);
    EXPECT_EQ(pair.b.next().status, IBV_WC_LOC_PROT_ERR);
  }
}

TEST(ReceiverNotReady, IsAnErrorAtOnceWithoutRetries) {
  QpSettings impatient;
  impatient.rnr_retry = 0;
  Pair pair(impatient);
  Memory local(pair.a_node);
  ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(state_of(pair.a), IBV_QPS_ERR);
  EXPECT_EQ(state_of(pair.b), IBV_QPS_RTS);
}

TEST(ReceiverNotReady, IsAnErrorAfterFiniteRetries) {
  QpSettings patient;
  patient.rnr_retry = 3;
  Pair pair(patient);
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  ASSERT_EQ(
      pair.a.post(rdma_request(IBV_WR_RDMA_WRITE_WITH_IMM, 1, remote.address(), remote.mr->rkey), local.slice(0, 8)),
      0);
  ASSERT_EQ(pair.a.post(send_request(2), local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_RNR_RETRY_EXC_ERR);
  const ibv_wc second = pair.a.next();
  EXPECT_EQ(second.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(second.wr_id, 2U);
}

TEST(ReceiverNotReady, WaitsWithoutEndAndKeepsTheOrder) {
  Pair pair;  // default rnr_retry is 7
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  local.fill(1);
  std::memset(remote.data, 0, remote.size);
  ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, 100)), 0);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 2, remote.address(2048), remote.mr->rkey), local.slice(0, 8)),
            0);
  EXPECT_TRUE(pair.a.poll().empty());
  EXPECT_EQ(remote.data[2048], std::byte{0}) << "a later WRITE must not overtake a SEND that waits";
  ASSERT_EQ(pair.b.post_recv(remote.slice(0, 100), 5), 0);
  EXPECT_EQ(pair.b.next().wr_id, 5U);  // without a poll by the sender: its retrying thread sends it
  EXPECT_EQ(pair.a.next().wr_id, 1U);
  EXPECT_EQ(pair.a.next().wr_id, 2U);
  EXPECT_EQ(std::memcmp(local.data, remote.data + 2048, 8), 0);
}

TEST(Unreachable, UnknownQueuePairNumber) {
  Node node;
  Qp qp(node);
  qp.connect_to(0xfffffe);
  Memory local(node);
  ASSERT_EQ(qp.post(send_request(1), local.slice(0, 8)), 0);
  EXPECT_EQ(qp.next().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(Unreachable, TargetConnectedToAnotherQueuePair) {
  Pair pair;
  Node unknown_node;
  Qp unknown(unknown_node);
  unknown.connect_to(pair.b.number());
  Memory local(unknown_node);
  Memory remote(pair.b_node);
  ASSERT_EQ(unknown.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey), local.slice(0, 8)), 0);
  EXPECT_EQ(unknown.next().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(Unreachable, TargetIsConnectedLater) {
  Node a_node;
  Node b_node;
  QpSettings patient;
  patient.timeout = 20;  // seconds
  Qp a(a_node, patient);
  Qp b(b_node);
  a.connect_to(b.number());
  Memory local(a_node);
  Memory remote(b_node);
  ASSERT_EQ(a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey), local.slice(0, 8)), 0);
  EXPECT_TRUE(a.poll().empty());
  b.connect_to(a.number());
  EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
}

TEST(Unreachable, TargetInErrorState) {
  Pair pair;
  Memory local(pair.a_node);
  ASSERT_EQ(pair.b.to_state(IBV_QPS_ERR), 0);
  ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(Unreachable, TargetDestroyed) {
  Pair pair;
  Memory local(pair.a_node);
  pair.b.qp.reset();
  ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(PathMtu, LongerPacketsThanTheTargetAcceptsAreRefused) {
  QpSettings small;
  small.mtu = IBV_MTU_512;
  Pair pair({}, small);
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey);
  ASSERT_EQ(pair.a.post(write, local.slice(0, 512)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.a.post(write, local.slice(0, 513)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST(Flush, EverythingOutstandingAndEverythingPostedLater) {
  Pair pair;
  Memory local(pair.a_node);
  ASSERT_EQ(pair.a.post_recv(local.slice(0, 8), 1), 0);
  ASSERT_EQ(pair.a.post(send_request(2), local.slice(0, 8)), 0);  // waits: the peer has no receive
  ASSERT_EQ(pair.a.to_state(IBV_QPS_ERR), 0);
  ASSERT_EQ(pair.a.post_recv(local.slice(0, 8), 3), 0);
  ASSERT_EQ(pair.a.post(send_request(4), local.slice(0, 8)), 0);
  std::uint64_t ids = 0;
  for (int i = 0; i < 4; ++i) {
    const ibv_wc wc = pair.a.next();
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    ids |= std::uint64_t{1} << wc.wr_id;
  }
  EXPECT_EQ(ids, 0b11110U);
  EXPECT_TRUE(pair.a.poll().empty());
}

TEST(Queues, FullIsAnErrorUntilCompletionsArePolled) {
  Pair pair;
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  const auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey);
  for (int i = 0; i < 16; ++i) ASSERT_EQ(pair.a.post(write, local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.post(write, local.slice(0, 8)), ENOMEM);
  EXPECT_EQ(pair.a.poll(1).size(), 1U);
  EXPECT_EQ(pair.a.post(write, local.slice(0, 8)), 0);
  for (int i = 0; i < 16; ++i) ASSERT_EQ(pair.b.post_recv(remote.slice(0, 8), 1), 0);
  EXPECT_EQ(pair.b.post_recv(remote.slice(0, 8), 1), ENOMEM);
}

TEST(Queues, UnsignaledRequestsStayUntilALaterCompletion) {
  QpSettings quiet;
  quiet.signal_all = false;
  Pair pair(quiet);
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey);
  for (int i = 0; i < 15; ++i) ASSERT_EQ(pair.a.post(write, local.slice(0, 8)), 0);
  EXPECT_TRUE(pair.a.poll().empty());
  write.send_flags = IBV_SEND_SIGNALED;
  ASSERT_EQ(pair.a.post(write, local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.post(write, local.slice(0, 8)), ENOMEM);
  EXPECT_EQ(pair.a.poll().size(), 1U);
  for (int i = 0; i < 16; ++i) ASSERT_EQ(pair.a.post(write, local.slice(0, 8)), 0);
}

TEST(Queues, BadRequestsAreRefusedWhenPosted) {
  Pair pair;
  Memory local(pair.a_node);
  std::array<ibv_sge, 5> five{};
  five.fill(local.slice(0, 8));
  EXPECT_EQ(pair.a.post(send_request(1), five), EINVAL);
  EXPECT_EQ(pair.a.post_recv(five, 1), EINVAL);
  auto unknown = send_request(1);
  unknown.opcode = IBV_WR_TSO;
  EXPECT_EQ(pair.a.post(unknown, local.slice(0, 8)), EOPNOTSUPP);
  auto add = atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 0, 1);
  EXPECT_EQ(pair.a.post(add, local.slice(0, 7)), EINVAL);
}

TEST(States, RequestsNeedTheRightOne) {
  Node node;
  Qp qp(node);
  Memory local(node);
  EXPECT_EQ(qp.post_recv(local.slice(0, 8), 1), EINVAL);
  EXPECT_EQ(qp.post(send_request(1), local.slice(0, 8)), EINVAL);
  EXPECT_EQ(qp.to_rts(), EINVAL);
  EXPECT_EQ(qp.to_rtr(1), EINVAL);
  ASSERT_EQ(qp.to_init(), 0);
  EXPECT_EQ(qp.post_recv(local.slice(0, 8), 1), 0);
  EXPECT_EQ(qp.post(send_request(1), local.slice(0, 8)), EINVAL);
  ASSERT_EQ(qp.to_rtr(qp.number()), 0);
  EXPECT_EQ(qp.post(send_request(1), local.slice(0, 8)), EINVAL);
  ASSERT_EQ(qp.to_rts(), 0);
  EXPECT_EQ(qp.post(send_request(1), local.slice(0, 8)), 0);
}

TEST(States, EachAttributeOfAMoveIsRequired) {
  Node node;
  Qp qp(node);
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_INIT;
  a.port_num = 1;
  constexpr int kInit = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  for (const int missing : {IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_ACCESS_FLAGS}) {
    EXPECT_EQ(api().modify_qp(qp.qp.get(), &a, IBV_QP_STATE | (kInit & ~missing)), EINVAL);
  }
  EXPECT_EQ(api().modify_qp(qp.qp.get(), &a, IBV_QP_STATE | kInit | IBV_QP_TIMEOUT), EINVAL);
  a.port_num = 2;
  EXPECT_EQ(api().modify_qp(qp.qp.get(), &a, IBV_QP_STATE | kInit), EINVAL);
}

TEST(States, AnotherHostIsNoTarget) {
  Node node;
  Qp qp(node);
  ASSERT_EQ(qp.to_init(), 0);
  ibv_qp_attr a{};
  a.qp_state = IBV_QPS_RTR;
  a.path_mtu = IBV_MTU_1024;
  a.ah_attr.is_global = 1;
  a.ah_attr.grh.dgid.raw[10] = a.ah_attr.grh.dgid.raw[11] = 0xff;
  a.ah_attr.grh.dgid.raw[12] = 203;  // 203.0.113.0/24 is for documentation
  a.ah_attr.grh.dgid.raw[14] = 113;
  EXPECT_EQ(api().modify_qp(qp.qp.get(), &a,
                            IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            EHOSTUNREACH);
  ibv_qp_attr now{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(api().query_qp(qp.qp.get(), &now, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(now.qp_state, IBV_QPS_INIT) << "a call that fails changes nothing";
  EXPECT_EQ(now.path_mtu, 0);
}

TEST(States, AQueuePairCanBeResetAndUsedAgain) {
  Pair pair;
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(pair.b.post_recv(remote.slice(0, 8), 1), 0);
    ASSERT_EQ(pair.b.post_recv(remote.slice(0, 8), 2), 0);
    ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, 8)), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
    ASSERT_EQ(pair.a.to_state(IBV_QPS_RESET), 0);
    ASSERT_EQ(pair.b.to_state(IBV_QPS_RESET), 0);
    EXPECT_TRUE(pair.b.poll().empty()) << "RESET drops what was posted";
    pair.a.connect_to(pair.b.number());
    pair.b.connect_to(pair.a.number());
  }
}

TEST(Registration, InvalidArgumentsAreRefused) {
  Node node;
  char byte = 0;
  EXPECT_EQ(api().reg_mr(node.pd.get(), &byte, 0, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(api().reg_mr(node.pd.get(), &byte, 1, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(api().reg_mr(node.pd.get(), &byte, 1, 1 << 19), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  void* const hole = mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(api().reg_mr(node.pd.get(), hole, 8192, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EFAULT);
  munmap(hole, 8192);
  EXPECT_EQ(api().reg_mr(node.pd.get(), hole, 8192, 0), nullptr);
  EXPECT_EQ(errno, EFAULT);
}

TEST(Objects, InUseCannotBeDestroyed) {
  Node node;
  Qp qp(node);
  Memory memory(node);
  EXPECT_EQ(api().dealloc_pd(node.pd.get()), EBUSY);
  EXPECT_EQ(api().destroy_cq(qp.cq.get()), EBUSY);
}

TEST(Objects, ADeviceClosesWithItsRemainingObjects) {
  const verbs::DeviceList list(api());
  ibv_context* const context = api().open_device(list[0]);
  ASSERT_NE(context, nullptr);
  // Their memory is lost together with the device. The static pointers keep it reachable for the leak sanitizer.
  static ibv_pd* pd = nullptr;
  static ibv_cq* cq = nullptr;
  pd = api().alloc_pd(context);
  cq = api().create_cq(context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {16, 16, 1, 1, 0};
  ibv_qp* const qp = api().create_qp(pd, &init);
  ASSERT_NE(qp, nullptr);

  Node node;
  Qp initiator(node);
  Memory source(node);
  initiator.connect_to(qp->qp_num);
  EXPECT_EQ(api().close_device(context), 0);
  ASSERT_EQ(initiator.post(send_request(1), source.slice(0, 8)), 0);
  EXPECT_EQ(initiator.next().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(Objects, QueuePairNumbersAreUniqueAndReusedLate) {
  Node node;
  std::vector<std::uint32_t> seen;
  for (int i = 0; i < 100; ++i) {
    Qp qp(node);
    EXPECT_TRUE(std::ranges::find(seen, qp.number()) == seen.end());
    seen.push_back(qp.number());
  }
}

TEST(Device, DescribesItself) {
  Node node;
  EXPECT_STREQ(node.context->device->name, "soft0");
  ibv_device_attr device{};
  ASSERT_EQ(api().query_device(node.context.get(), &device), 0);
  EXPECT_EQ(device.atomic_cap, IBV_ATOMIC_GLOB);
  EXPECT_EQ(device.phys_port_cnt, 1);
  ibv_port_attr port{};
  ASSERT_EQ(api().query_port(node.context.get(), 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(api().query_port(node.context.get(), 2, &port), EINVAL);
  ibv_gid_entry entry{};
  ASSERT_GE(port.gid_tbl_len, 2);
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ASSERT_EQ(api().query_gid_entry(node.context.get(), 1, static_cast<std::uint32_t>(i), &entry), 0);
    EXPECT_EQ(entry.gid_type, static_cast<std::uint32_t>(i % 2 == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2));
  }
  EXPECT_EQ(api().query_gid_entry(node.context.get(), 1, static_cast<std::uint32_t>(port.gid_tbl_len), &entry),
            ENODATA);
}

/// The target's device is informed of a failure by a message, which may arrive after the queue pair was connected
/// again.
TEST(Reconnecting, AnEarlierFailureDoesNotAffectTheNextConnection) {
  Pair pair;
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  for (int round = 0; round < 300; ++round) {
    ASSERT_EQ(
        pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey + 256), local.slice(0, 8)), 0);
    ASSERT_EQ(pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
    for (Qp* const end : {&pair.a, &pair.b}) ASSERT_EQ(end->to_state(IBV_QPS_RESET), 0);
    pair.a.connect_to(pair.b.number());
    pair.b.connect_to(pair.a.number());
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 2, remote.address(), remote.mr->rkey), local.slice(0, 8)),
                0);
      ASSERT_EQ(pair.a.next().status, IBV_WC_SUCCESS) << round;
    }
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
