// Invalid data that a peer may write into the control segment: it is checked before it is used.
#include <array>
#include <cstring>

#include "softdev/local/peer.h"
#include "softdev/shared/unix_packet.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::uint32_t kHuge = 0xffff'fff0;

/// The control segment of a queue pair's process, as a peer maps it.
struct Scribbler {
  std::shared_ptr<Peer> peer;
  std::unique_ptr<RemoteQp> remote;

  explicit Scribbler(const Qp& target) {
    int error = 0;
    peer = Peer::connect(target.number(), error);
    EXPECT_NE(peer, nullptr) << error;
    remote = peer->attach(target.number(), 0, error);
    EXPECT_NE(remote, nullptr);
  }
  /// Adds a message of `bytes` in the slot at `position`.
  void publish(std::uint32_t position, std::uint32_t bytes, bool eager, std::uint8_t status = IBV_WC_SUCCESS,
               std::uint32_t shared_entry = 0) const {
    InSlot& slot = remote->view.slot(position);
    slot.bytes = bytes;
    SharedReceive::entry(slot) = shared_entry;
    slot.head.store({position + 1, status, 0, 0, static_cast<std::uint8_t>(eager)}, std::memory_order_release);
  }
};

/// A target with one receive of 16 bytes, in memory that is filled with sevens.
struct Target {
  Pair pair;
  Memory memory{pair.b_node};
  Scribbler scribbler{pair.b};

  Target() {
    std::memset(memory.data, 7, memory.size);
    EXPECT_EQ(pair.b.post_recv(memory.slice(0, 16), 5), 0);
  }
  [[nodiscard]] bool unchanged_from(std::size_t offset) const {
    return std::all_of(memory.data + offset, memory.data + memory.size,
                       [](std::byte byte) { return byte == std::byte{7}; });
  }
};

TEST(ScribbledSegment, AMessageLongerThanItsSlotOrReceiveIsRefused) {
  for (const bool eager : {true, false}) {
    for (const std::uint32_t bytes : {17U, 49U, kHuge}) {
      Target target;
      target.scribbler.publish(0, bytes, eager);
      const std::vector<ibv_wc> found = target.pair.b.poll();
      ASSERT_EQ(found.size(), 1U);
      EXPECT_EQ(found[0].wr_id, 5U);
      EXPECT_NE(found[0].status, IBV_WC_SUCCESS) << eager << " " << bytes;
      EXPECT_TRUE(target.unchanged_from(16));
      EXPECT_EQ(state_of(target.pair.b), IBV_QPS_ERR);
    }
  }
}

TEST(ScribbledSegment, AnInvalidStatusBecomesAGeneralError) {
  Target target;
  target.scribbler.publish(0, 8, false, 200);
  const std::vector<ibv_wc> found = target.pair.b.poll();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].status, IBV_WC_GENERAL_ERR);
  EXPECT_EQ(state_of(target.pair.b), IBV_QPS_ERR);
}

TEST(ScribbledSegment, AMessageWithoutAReceiveEndsTheQueuePair) {
  Target target;
  target.scribbler.publish(0, 8, true);
  target.scribbler.publish(1, 8, true);
  const std::vector<ibv_wc> found = target.pair.b.poll();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(state_of(target.pair.b), IBV_QPS_ERR);
  EXPECT_EQ(target.pair.b.post_recv(target.memory.slice(16, 16), 6), 0) << "the queue counts as before";
}

struct SharedTarget {
  Node node;
  Memory memory{node};
  verbs::SrqHandle srq;

  SharedTarget() {
    ibv_srq_init_attr init{};
    init.attr = {12, 2, 0};
    srq = verbs::SrqHandle(api(), api().create_srq(node.pd.get(), &init));
  }
  [[nodiscard]] QpSettings settings() const {
    QpSettings of_queue;
    of_queue.srq = srq.get();
    return of_queue;
  }
};

TEST(ScribbledSegment, AMessageTakesASharedReceiveThatIsPosted) {
  SharedTarget target;
  Node initiator_node;
  Memory from(initiator_node);
  Qp good(initiator_node);
  Qp good_target(target.node, target.settings());
  good.connect_to(good_target.number());
  good_target.connect_to(good.number());
  ASSERT_EQ(post_shared_receive(target.srq.get(), 5, target.memory.slice(0, 64)), 0);
  for (const std::uint32_t entry : {1U, 11U, 12U, 15U, 16U, kHuge}) {
    Qp other(initiator_node);
    Qp bad_target(target.node, target.settings());
    other.connect_to(bad_target.number());
    bad_target.connect_to(other.number());
    const Scribbler scribbler(bad_target);
    scribbler.publish(0, 8, true, IBV_WC_SUCCESS, entry);
    EXPECT_TRUE(bad_target.poll().empty()) << entry;
    EXPECT_EQ(state_of(bad_target), IBV_QPS_ERR) << entry;
    scribbler.remote->view.shared->claimed = entry + 1;  // is returned with the queue pair
  }
  ASSERT_EQ(good.post(send_request(1), from.slice(0, 8)), 0);
  EXPECT_EQ(good.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(good_target.next().wr_id, 5U);
  ASSERT_EQ(good.post(send_request(2), from.slice(0, 8)), 0);
  EXPECT_TRUE(good_target.poll().empty()) << "a receive that nobody has posted";
}

TEST(ScribbledSegment, AnInitiatorAccessesOnlyItsMappings) {
  SharedTarget target;
  Node initiator_node;
  Memory from(initiator_node);
  Qp initiator(initiator_node);
  Qp qp(target.node, target.settings());
  initiator.connect_to(qp.number());
  qp.connect_to(initiator.number());
  ASSERT_EQ(post_shared_receive(target.srq.get(), 5, target.memory.slice(0, 64)), 0);
  const Scribbler scribbler(qp);
  scribbler.remote->srq.order[0].store(kHuge);
  ASSERT_EQ(initiator.post(send_request(1), from.slice(0, 64)), 0);
  (void)initiator.next();  // may fail, but it ends
}

TEST(ScribbledSegment, AScatterListEndsWithItsEntry) {
  Target target;
  Memory from(target.pair.a_node);
  const QpView& view = target.scribbler.remote->view;
  view.recv(0).total = 4096;  // its only slice has 16
  // The bytes after the entry would be a valid slice.
  const ibv_sge behind = target.memory.slice(1024, 2048);
  std::memcpy(reinterpret_cast<std::byte*>(&view.recv(0)) + view.stride, &behind, sizeof(behind));
  ASSERT_EQ(target.pair.a.post(send_request(1), from.slice(0, 1024)), 0);
  EXPECT_EQ(target.pair.a.next().status, IBV_WC_REM_OP_ERR);
  EXPECT_TRUE(target.unchanged_from(16));
}

/// Requests that an initiator of this device never sends to the serving thread.
TEST(ScribbledSegment, UnalignedAtomicsAndEmptyRequestsAreSafe) {
  Pair pair;
  Memory memory(pair.b_node, 4096, kAllRemote, true);
  const Scribbler scribbler(pair.b);
  Request request;
  request.qpn = pair.b.number();
  request.rkey = memory.mr->rkey;
  std::uint64_t before = 0;
  for (const RequestKind kind : {RequestKind::kFetchAdd, RequestKind::kCompareSwap}) {
    request.kind = kind;
    request.address = memory.address(4);
    EXPECT_EQ(scribbler.peer->request(request, {}, &before), EINVAL);
    request.address = memory.address(8);
    EXPECT_EQ(scribbler.peer->request(request, {}, &before), 0);
  }
  for (const RequestKind kind : {RequestKind::kRead, RequestKind::kWrite}) {
    request.kind = kind;
    request.length = 0;
    const UniqueFd socket(dup(scribbler.peer->socket()));
    ASSERT_TRUE(send_packet(socket.get(), std::as_bytes(std::span(&request, 1))));
    Answer answer;
    UniqueFd none;
    ASSERT_GT(receive_packet(socket.get(), std::as_writable_bytes(std::span(&answer, 1)), {}, &none, 20'000), 0);
    EXPECT_EQ(answer.error, EINVAL);
  }
}

TEST(ScribbledSegment, AWrongNumberOfEventsDoesNotBlockTheDestruction) {
  QpSettings with_channel;
  with_channel.with_channel = true;
  Pair pair({}, with_channel);
  const Scribbler scribbler(pair.b);
  scribbler.remote->recv_cq->pending_events.store(kHuge);
  pair.b.qp.reset();
  pair.b.cq.reset();  // returns
}

}  // namespace
}  // namespace rdmacomm::softdev::test
