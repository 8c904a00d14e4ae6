// Between hosts one connection carries the requests of both ends, and the answers to them. As with a NIC, a request
// completes before a message that the peer has sent in reaction to it arrives. The test plays the peer, so it decides
// what is sent and when.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "softdev/tcp/manual_scene.h"
#include "softdev/tcp/tcp_raw_client.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

TEST(TcpOrder, ARequestCompletesNoLaterThanThePeersReplyToIt) {
  ManualScene scene;
  scene.post();
  EXPECT_EQ(scene.next_request().done, 0U);
  scene.send(1);
  // Completions of two queues may come in any order. But if the message has arrived, the completion must be available,
  // too.
  const ibv_wc first = scene.qp.next();
  const ibv_wc second = first.opcode == IBV_WC_RECV ? scene.qp.poll(1).at(0) : scene.qp.next();
  EXPECT_EQ(first.opcode + second.opcode, IBV_WC_SEND + IBV_WC_RECV);
  scene.post();
  (void)scene.next_request();
  scene.answer(2);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_SEND);
}

/// A READ is not done before its data has arrived, whatever the peer reports.
TEST(TcpOrder, SkippingAReadIsAProtocolError) {
  ManualScene scene;
  ASSERT_EQ(scene.qp.post(rdma_request(IBV_WR_RDMA_READ, 4, 0, 0), scene.memory.slice(256, 8)), 0);
  scene.post();
  (void)hear<TcpRequest>(scene.connection);
  (void)scene.next_request();
  scene.send(2);
  EXPECT_TRUE(is_closed(scene.connection));
}

TEST(TcpOrder, AMessageDoesNotWaitForUnexecutedRequests) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  scene.send(0);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  scene.answer(1);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_SEND);
}

TEST(TcpOrder, ReportingMoreThanWasSentIsAProtocolError) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  scene.send(2);
  EXPECT_TRUE(is_closed(scene.connection));
}

TEST(TcpOrder, ARequestReportsTheExecutedRequests) {
  ManualScene scene;
  scene.poll_in_vain();
  scene.send(0);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  scene.post();
  const auto first = hear<TcpAnswer>(scene.connection);
  EXPECT_EQ(first.done, 1U) << "in an answer, or in the request";
}

/// A failed queue pair does not wait for anything that it still owes: the peer is informed of the end.
TEST(TcpOrder, AQueuePairInErrorDoesNotWaitForReports) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  ASSERT_EQ(scene.qp.to_state(IBV_QPS_ERR), 0);
  scene.send(1);
  EXPECT_EQ(scene.next_answer().kind, TcpAnswer::kUnreachable);
}

/// An unreliable queue pair continues after a local error. Its peer has not counted the request that was never sent.
TEST(TcpOrder, ARequestThatWasNeverSentHasNoNumber) {
  const WireVariable variable("tcp");
  const QpSettings unreliable{.type = IBV_QPT_UC};
  Pair pair(unreliable, unreliable);
  const Memory local(pair.a_node);
  const Memory remote(pair.b_node);
  const ibv_send_wr write = rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey);
  ASSERT_EQ(pair.a.post(write, local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  ibv_sge wrong = local.slice(0, 8);
  wrong.lkey += 256;
  ASSERT_EQ(pair.a.post(write, wrong), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_LOC_PROT_ERR);
  ASSERT_EQ(pair.a.to_state(IBV_QPS_RTS), 0);
  ASSERT_EQ(pair.a.post(write, local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
}

/// If a message's memory is unmapped while it is sent, it cannot be finished, and no other request's data may be sent
/// in its place.
TEST(TcpOrder, AMessageThatCannotBeCompletedEndsTheConnection) {
  constexpr std::size_t kLong = 32U << 20;
  constexpr std::size_t kNext = 12U << 20;
  ManualScene scene;
  Memory gone(scene.node, kLong, kAllRemote, true);
  const Memory next(scene.node, kNext);
  std::memset(next.data, 7, kNext);
  ASSERT_EQ(scene.qp.post(rdma_request(IBV_WR_RDMA_WRITE, 4, 0, 0), gone.slice(0, kLong)), 0);
  ASSERT_EQ(scene.qp.post(rdma_request(IBV_WR_RDMA_WRITE, 5, 0, 0), next.slice(0, kNext)), 0);
  EXPECT_EQ(hear<TcpRequest>(scene.connection).length, kLong);
  std::vector<std::byte> rest(kLong);  // allocated before munmap, to not reuse that memory
  munmap(gone.data, gone.size);
  EXPECT_LT(recv(scene.connection.get(), rest.data(), rest.size(), MSG_WAITALL), static_cast<ssize_t>(kLong));
  EXPECT_EQ(std::ranges::count(rest, std::byte{7}), 0);
  ibv_wc wc = scene.qp.next();
  while (wc.wr_id != 4) wc = scene.qp.next();  // its receives are flushed
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  gone.mr.reset();
  gone.data = nullptr;
}

/// An answer may be delayed until the application polls again, but not forever.
TEST(TcpOrder, AMessageIsAnsweredWithoutAnotherPoll) {
  ManualScene scene;
  scene.poll_in_vain();
  scene.send(0);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  EXPECT_EQ(scene.next_answer().done, 1U);
}

TEST(TcpOrder, AMessageIsAnsweredBeforeItsQueuePairIsDestroyed) {
  ManualScene scene;
  scene.poll_in_vain();
  scene.send(0);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  scene.qp.qp.reset();
  EXPECT_EQ(scene.next_answer().done, 1U);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
