// Between hosts each direction has a connection of its own, and one may overtake the other. What a peer reacts to is completed all
// the same, as with a NIC. The peer here is the test itself, so it decides what comes when.
#include <gtest/gtest.h>

#include <cstdint>
#include <set>

#include "softdev/raw_verbs.h"
#include "softdev/tcp_stranger.h"

namespace rdmacomm::softdev::test {
namespace {

/// A queue pair that is connected to the test, both ways.
struct ManualScene {
  WireVariable variable{"tcp"};
  Node node;
  Memory memory{node};
  ManualPeer peer;
  Qp qp{node};
  UniqueFd its_requests;  // and our answers
  UniqueFd our_requests;  // and its answers

  ManualScene() {
    qp.connect_to(peer.number);
    EXPECT_EQ(qp.post_recv(memory.slice(0, 64), 1), 0);
    EXPECT_EQ(qp.post_recv(memory.slice(64, 64), 2), 0);
    its_requests = peer.accept();
    EXPECT_EQ(hear<TcpGreeting>(its_requests).initiator_qpn, qp.number());
    welcome(its_requests);
    our_requests = knock(qp.number());
    TcpGreeting greeting;
    greeting.kind = GreetingKind::kRequests;
    greeting.service = Service::kReliable;
    greeting.initiator_qpn = peer.number;
    greeting.target_qpn = qp.number();
    greeting.path_mtu = 4096;
    greeting.token = 77;
    say(our_requests, greeting);
    const UniqueFd question = peer.accept();
    EXPECT_EQ(hear<TcpGreeting>(question).token, 77U);
    welcome(question);
    EXPECT_EQ(welcome_of(our_requests), Welcome::kYes);
  }
  /// Its next request, which is a SEND of 8 bytes.
  [[nodiscard]] TcpRequest next_request() const {
    const auto request = hear<TcpRequest>(its_requests);
    EXPECT_EQ(request.length, 8U);
    (void)hear<std::uint64_t>(its_requests);
    return request;
  }
  void answer(std::uint32_t done, TcpAnswer::Kind kind = TcpAnswer::kDone, std::uint32_t length = 0) const {
    TcpAnswer answer;
    answer.done = done;
    answer.kind = kind;
    answer.length = length;
    say(its_requests, answer);
  }
  /// A SEND of ours, having polled so many of its.
  void send(std::uint32_t heard) const {
    TcpRequest request;
    request.opcode = IBV_WR_SEND;
    request.length = 8;
    request.heard = heard;
    say(our_requests, request);
    say(our_requests, std::uint64_t{0});
  }
  /// Long enough for the thread to leave the sockets to who polls.
  void poll_in_vain() {
    for (int i = 0; i < 10'000; ++i) ASSERT_TRUE(qp.poll().empty()) << "after " << i << " polls";
  }
  void post() { ASSERT_EQ(qp.post(send_request(3), memory.slice(128, 8)), 0); }
};

TEST(TcpOrder, WhatThePeerReactsToIsCompletedWithoutAnAnswer) {
  ManualScene scene;
  scene.post();
  EXPECT_EQ(scene.next_request().heard, 0U);
  scene.send(1);
  // A completion queue says nothing of the order of two queues; but where the message is there, so is the completion.
  const ibv_wc first = scene.qp.next();
  const ibv_wc second = first.opcode == IBV_WC_RECV ? scene.qp.poll(1).at(0) : scene.qp.next();
  EXPECT_EQ(first.opcode + second.opcode, IBV_WC_SEND + IBV_WC_RECV);
  // The answer that comes later says nothing new.
  scene.answer(1);
  scene.post();
  (void)scene.next_request();
  scene.answer(2);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_SEND);
}

/// A READ before it is not done before its bytes are here.
TEST(TcpOrder, WhatThePeerReactsToWaitsForWhatWasPostedBeforeIt) {
  ManualScene scene;
  ASSERT_EQ(scene.qp.post(rdma_request(IBV_WR_RDMA_READ, 4, 0, 0), scene.memory.slice(256, 8)), 0);
  scene.post();
  (void)hear<TcpRequest>(scene.its_requests);
  (void)scene.next_request();
  scene.send(1);
  scene.poll_in_vain();
  scene.answer(1, TcpAnswer::kPayload, 8);
  say(scene.its_requests, std::uint64_t{0});
  const std::multiset<ibv_wc_opcode> all = {scene.qp.next().opcode, scene.qp.next().opcode, scene.qp.next().opcode};
  EXPECT_EQ(all, (std::multiset{IBV_WC_RDMA_READ, IBV_WC_SEND, IBV_WC_RECV}));
}

TEST(TcpOrder, WhatThePeerDidNotPollIsNotWaitedFor) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  scene.send(0);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  scene.answer(1);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_SEND);
}

/// A peer that was connected to an earlier life of this queue pair counts otherwise.
TEST(TcpOrder, MoreThanWasSentIsNotWaitedFor) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  scene.send(2);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
}

TEST(TcpOrder, ARequestSaysWhatWasPolled) {
  ManualScene scene;
  scene.send(0);
  scene.send(0);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  scene.post();
  EXPECT_EQ(scene.next_request().heard, 1U);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  scene.post();
  EXPECT_EQ(scene.next_request().heard, 2U);
}

/// Once it has failed, nothing that it still owes is waited for: the peer hears of the end.
TEST(TcpOrder, AQueuePairInErrorOwesNothing) {
  ManualScene scene;
  scene.post();
  (void)scene.next_request();
  ASSERT_EQ(scene.qp.to_state(IBV_QPS_ERR), 0);
  scene.send(1);
  EXPECT_EQ(hear<TcpAnswer>(scene.our_requests).kind, TcpAnswer::kUnreachable);
}

/// An answer may wait until the application looks again. It is not to wait for that for ever.
TEST(TcpOrder, AMessageIsAnsweredThoughNobodyPollsAgain) {
  ManualScene scene;
  scene.poll_in_vain();
  scene.send(0);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  EXPECT_EQ(hear<TcpAnswer>(scene.our_requests).done, 1U);
}

TEST(TcpOrder, AMessageIsAnsweredBeforeItsQueuePairIsDestroyed) {
  ManualScene scene;
  scene.poll_in_vain();
  scene.send(0);
  EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
  scene.qp.qp.reset();
  EXPECT_EQ(hear<TcpAnswer>(scene.our_requests).done, 1U);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
