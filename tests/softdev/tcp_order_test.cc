// Between hosts one connection carries the requests of both ends, and the answers to them. What a peer reacts to is completed before
// what it sends then, as with a NIC. The peer here is the test itself, so it decides what comes when.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "softdev/manual_scene.h"
#include "softdev/raw_verbs.h"
#include "softdev/tcp_stranger.h"

namespace rdmacomm::softdev::test {
namespace {

TEST(TcpOrder, WhatThePeerReactsToIsCompletedWithIt) {
  ManualScene scene;
  scene.post();
  EXPECT_EQ(scene.next_request().done, 0U);
  scene.send(1);
  // A completion queue says nothing of the order of two queues; but where the message is there, so is the completion.
  const ibv_wc first = scene.qp.next();
  const ibv_wc second = first.opcode == IBV_WC_RECV ? scene.qp.poll(1).at(0) : scene.qp.next();
  EXPECT_EQ(first.opcode + second.opcode, IBV_WC_SEND + IBV_WC_RECV);
  scene.post();
  (void)scene.next_request();
  scene.answer(2);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_SEND);
}

/// A READ is not done before its bytes are here, whatever is said.
TEST(TcpOrder, WhoPassesAReadOverDoesNotFollowTheProtocol) {
  ManualScene scene;
  ASSERT_EQ(scene.qp.post(rdma_request(IBV_WR_RDMA_READ, 4, 0, 0), scene.memory.slice(256, 8)), 0);
  scene.post();
  (void)hear<TcpRequest>(scene.connection);
  (void)scene.next_request();
  scene.send(2);
  EXPECT_TRUE(is_closed(scene.connection));
}

TEST(TcpOrder, WhatIsNotCarriedOutIsNotWaitedFor) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  scene.send(0);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  scene.answer(1);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_SEND);
}

TEST(TcpOrder, WhoHasDoneMoreThanWasSentDoesNotFollowTheProtocol) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  scene.send(2);
  EXPECT_TRUE(is_closed(scene.connection));
}

TEST(TcpOrder, ARequestSaysWhatWasCarriedOut) {
  ManualScene scene;
  scene.poll_in_vain();
  scene.send(0);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  scene.post();
  const auto first = hear<TcpAnswer>(scene.connection);
  EXPECT_EQ(first.done, 1U) << "in an answer, or in the request";
}

/// Once it has failed, nothing that it still owes is waited for: the peer hears of the end.
TEST(TcpOrder, AQueuePairInErrorOwesNothing) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  ASSERT_EQ(scene.qp.to_state(IBV_QPS_ERR), 0);
  scene.send(1);
  EXPECT_EQ(scene.next_answer().kind, TcpAnswer::kUnreachable);
}

/// An answer may wait until the application looks again. It is not to wait for that for ever.
TEST(TcpOrder, AMessageIsAnsweredThoughNobodyPollsAgain) {
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
