// A queue pair goes through RESET while its peer keeps the connection.
#include <sched.h>

#include <future>

#include "softdev/local/peer.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// One end of a used connection begins again, with its first PSN. The two PSNs differ.
void expect_silence(Qp& sender, Qp& receiver) {
  const Memory from(sender.node);
  const Memory to(receiver.node);
  ASSERT_EQ(receiver.post_recv(to.slice(0, 64), 3), 0);
  ASSERT_EQ(sender.post(send_request(4), from.slice(0, 64)), 0);
  EXPECT_EQ(sender.next().status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_TRUE(receiver.poll().empty());
}

void send_one(Qp& sender, Qp& receiver) {
  const Memory from(sender.node);
  const Memory to(receiver.node);
  ASSERT_EQ(receiver.post_recv(to.slice(0, 64), 1), 0);
  ASSERT_EQ(sender.post(send_request(2), from.slice(0, 64)), 0);
  EXPECT_EQ(sender.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(receiver.next().wr_id, 1U);
}

void expect_end_by_reset(Qp Pair::*which) {
  Pair pair;
  send_one(pair.a, pair.b);
  Qp& one = pair.*which;
  Qp& other = which == &Pair::a ? pair.b : pair.a;
  ASSERT_EQ(one.to_state(IBV_QPS_RESET), 0);
  one.connect_to(other.number());
  expect_silence(pair.a, pair.b);
}

TEST(ResetOfOneEnd, OfTheTargetEndsTheConnection) {
  expect_end_by_reset(&Pair::b);
}

TEST(ResetOfOneEnd, OfTheInitiatorEndsTheConnection) {
  expect_end_by_reset(&Pair::a);
}

TEST(Reset, OfBothEndsConnectsThemAgain) {
  Pair pair;
  for (int i = 0; i < 3; ++i) {
    send_one(pair.a, pair.b);
    send_one(pair.b, pair.a);
    ASSERT_EQ(pair.a.to_state(IBV_QPS_RESET), 0);
    ASSERT_EQ(pair.b.to_state(IBV_QPS_RESET), 0);
    pair.a.connect_to(pair.b.number());
    pair.b.connect_to(pair.a.number());
  }
}

TEST(Reset, AMessageTakesNoReceiveFromBeforeTheReset) {
  Pair pair;
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  local.fill(3);
  ASSERT_EQ(pair.b.post_recv(remote.slice(0, 1024), 1), 0);
  ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, 1024)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.next().wr_id, 1U);

  ASSERT_EQ(pair.a.to_state(IBV_QPS_RESET), 0);
  ASSERT_EQ(pair.b.to_state(IBV_QPS_RESET), 0);
  pair.a.connect_to(pair.b.number());
  pair.b.connect_to(pair.a.number());
  std::memset(remote.data, 0, remote.size);
  ASSERT_EQ(pair.a.post(send_request(2), local.slice(0, 1024)), 0);
  EXPECT_TRUE(pair.a.poll().empty()) << "no receive is posted";
  EXPECT_TRUE(pair.b.poll().empty());
  EXPECT_EQ(remote.data[1], std::byte{0});
  ASSERT_EQ(pair.b.post_recv(remote.slice(2048, 1024), 2), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.next().wr_id, 2U);
  EXPECT_EQ(std::memcmp(remote.data + 2048, local.data, 1024), 0);
}

void expect_no_end_of_the_next_life(void (SoftQp::*fail)()) {
  Pair pair;
  int error = 0;
  const auto peer = Peer::connect(pair.b.number(), error);
  ASSERT_NE(peer, nullptr) << error;
  const auto remote = peer->attach(pair.b.number(), 0, error);
  ASSERT_NE(remote, nullptr) << error;
  remote->view.shared->busy.store(1);  // RESET waits for an active initiator
  auto reset = std::async(std::launch::async, [&] { return pair.b.to_state(IBV_QPS_RESET); });
  while (state_of(pair.b) != IBV_QPS_RESET) sched_yield();
  (SoftQp::from(pair.b.qp.get()).*fail)();
  remote->view.shared->busy.store(0);
  EXPECT_EQ(reset.get(), 0);
  EXPECT_EQ(state_of(pair.b), IBV_QPS_RESET);
  pair.b.connect_to(pair.a.number());
}

TEST(Reset, AnEarlierFailureDoesNotEndTheResetQueuePair) {
  expect_no_end_of_the_next_life(&SoftQp::enter_error);
}

TEST(Reset, AnEarlierOverrunDoesNotEndTheResetQueuePair) {
  expect_no_end_of_the_next_life(&SoftQp::lose_completions);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
