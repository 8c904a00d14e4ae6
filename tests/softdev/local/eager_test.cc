// Short messages are passed in their slot, regardless of other receives that were posted before or at the same time.
#include <cstring>

#include "softdev/local/peer.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// A pair whose test can inspect the target's slots.
struct Seen {
  Pair pair;
  Memory from{pair.a_node};
  // not mapped by the peer: needs system calls, except for eager messages
  Memory to{pair.b_node, 4096, kAllRemote, true};
  std::shared_ptr<Peer> peer;
  std::unique_ptr<RemoteQp> remote;
  std::uint32_t position = 0;

  Seen() {
    int error = 0;
    peer = Peer::connect(pair.b.number(), error);
    EXPECT_NE(peer, nullptr) << error;
    remote = peer->attach(pair.b.number(), 0, error);
    EXPECT_NE(remote, nullptr) << error;
    from.fill(1);
  }
  /// Posts a receive of `room` bytes.
  void receive(std::uint32_t room) { ASSERT_EQ(pair.b.post_recv(to.slice(0, room), room), 0); }
  /// Sends `bytes`. Returns whether they were passed in the slot.
  bool send(std::uint32_t bytes, ibv_wc_status status = IBV_WC_SUCCESS) {
    EXPECT_EQ(pair.a.post(send_request(1), from.slice(0, bytes)), 0);
    EXPECT_EQ(pair.a.next().status, status);
    const SlotHead head = remote->view.slot(position).head.load();
    EXPECT_EQ(head.sequence, position + 1);
    ++position;
    return (head.contents & SlotContents::kEager) != 0;
  }
  void poll(std::uint32_t bytes) {
    const ibv_wc wc = pair.b.next();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, bytes);
    EXPECT_EQ(std::memcmp(to.data, from.data, bytes), 0);
  }
};

TEST(Eager, AnEmptyReceiveInTheQueueDoesNotEndIt) {
  Seen seen;
  for (const std::uint32_t room : {64U, 0U, 64U, 8U, 64U}) seen.receive(room);
  EXPECT_TRUE(seen.send(32));
  EXPECT_TRUE(seen.send(0));
  EXPECT_TRUE(seen.send(32));
  EXPECT_TRUE(seen.send(8));
  EXPECT_TRUE(seen.send(48));
  for (const std::uint32_t bytes : {32U, 0U, 32U, 8U, 48U}) seen.poll(bytes);
}

TEST(Eager, AReceiveThatIsTooShortIsNoticed) {
  Seen seen;
  seen.receive(64);
  seen.receive(8);
  EXPECT_TRUE(seen.send(32));
  EXPECT_FALSE(seen.send(32, IBV_WC_REM_INV_REQ_ERR));
}

TEST(Eager, UsedReceivesAreForgotten) {
  Seen seen;
  seen.receive(0);
  EXPECT_TRUE(seen.send(0));
  seen.poll(0);
  EXPECT_EQ(seen.remote->view.shared->recv_floor.load(), 0U);
  seen.receive(64);
  EXPECT_EQ(seen.remote->view.shared->recv_floor.load(), 64U);
}

/// If one receive's memory is no longer registered, a message to it is refused, and other receives are not affected.
TEST(Eager, DeregisteredMemoryIsChecked) {
  Seen seen;
  Memory other(seen.pair.b_node, 4096, kAllRemote, true);
  seen.receive(64);
  ASSERT_EQ(seen.pair.b.post_recv(other.slice(0, 64), 2), 0);
  other.mr.reset();
  EXPECT_TRUE(seen.send(32));
  seen.poll(32);
  EXPECT_FALSE(seen.send(32, IBV_WC_REM_OP_ERR));
}

TEST(Eager, ASharedQueueForgetsToo) {
  Node node;
  Memory to(node, 4096, kAllRemote, true);
  ibv_srq_init_attr init{};
  init.attr = {4, 2, 0};
  const verbs::SrqHandle srq(api(), api().create_srq(node.pd.get(), &init));
  QpSettings shared;
  shared.srq = srq.get();
  Qp target(node, shared);
  Node other;
  Qp initiator(other);
  Memory from(other);
  initiator.connect_to(target.number());
  target.connect_to(initiator.number());
  int error = 0;
  const auto peer = Peer::connect(target.number(), error);
  ASSERT_NE(peer, nullptr);
  const auto remote = peer->attach(target.number(), 0, error);
  ASSERT_NE(remote, nullptr);
  ASSERT_EQ(post_shared_receive(srq.get(), 1, to.slice(0, 0)), 0);
  ASSERT_EQ(post_shared_receive(srq.get(), 2, to.slice(0, 64)), 0);
  for (const std::uint32_t bytes : {0U, 32U}) {
    ASSERT_EQ(initiator.post(send_request(1), from.slice(0, bytes)), 0);
    EXPECT_EQ(initiator.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(target.next().status, IBV_WC_SUCCESS);
  }
  EXPECT_NE(remote->view.slot(1).head.load().contents & SlotContents::kEager, 0);
  ASSERT_EQ(post_shared_receive(srq.get(), 3, to.slice(0, 64)), 0);
  EXPECT_EQ(remote->srq.shared->recv_floor.load(), 64U);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
