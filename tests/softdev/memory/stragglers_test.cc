// A peer that is stopped in the middle of a request: the local process can still release its memory, queue pairs and
// device. Whatever the peer does when it continues has no effect.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include "softdev/context/soft_context.h"
#include "softdev/local/peer.h"
#include "softdev/local/two_processes.h"
#include "softdev/queues/datagrams.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/shared/hazard.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::size_t kLongMessage = 1 << 20;  // long, so that nearly all time is spent copying
constexpr auto kLate = std::byte{0xab};
constexpr auto kOwn = std::byte{0x11};

/// Posts `request` again and again until it fails. Sends the status of the failed one.
void repeat_until_refused(Line line, ibv_wr_opcode opcode) {
  Node node;
  Qp qp(node);
  Memory memory(node, kLongMessage);
  std::memset(memory.data, static_cast<int>(kLate), memory.size);
  const QueueInfo peer = introduce(line, qp, memory);
  ibv_wc wc{};
  do {
    ASSERT_EQ(qp.post(rdma_request(opcode, 1, peer.address, peer.rkey), memory.slice(0, kLongMessage)), 0);
    wc = qp.next();
  } while (wc.status == IBV_WC_SUCCESS);
  line.send({static_cast<std::uint32_t>(wc.status), 0, 0});
}

void write_until_refused(Line line) {
  repeat_until_refused(line, IBV_WR_RDMA_WRITE);
}
void send_until_refused(Line line) {
  repeat_until_refused(line, IBV_WR_SEND);
}
/// Sends datagrams to the queue pair that the parent names, until it is killed.
void send_datagrams(Line line) {
  Node node;
  Qp qp(node, kUd);
  qp.get_ready();
  Memory memory(node);
  const Address target(node);
  const std::uint32_t qpn = line.receive().qpn;
  for (;;) {
    ASSERT_EQ(qp.post(datagram(1, target, qpn), memory.slice(0, memory.size)), 0);
    ASSERT_EQ(qp.next().status, IBV_WC_SUCCESS);
  }
}

/// Stops the child in the middle of a request to `target`. Calls `meanwhile` again and again while the child runs.
template <typename Meanwhile>
void stop_at_work(const Child& child, const Qp& target, Meanwhile&& meanwhile) {
  const QpInitiators& initiators = SoftQp::from(target.qp.get()).initiators();
  for (;;) {
    child.stop();
    if (initiators.is_busy()) return;
    child.resume();
    do {
      meanwhile();
    } while (!initiators.is_busy());
  }
}
void stop_at_work(const Child& child, const Qp& target) {
  stop_at_work(child, target, [] {});
}

/// The expected statuses of a request from a peer if the target no longer exists or, if the peer was stopped before the
/// check, if the memory no longer exists.
void expect_end_of_connection(ibv_wc_status status) {
  EXPECT_TRUE(status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR)
      << status;
}

SoftContext& context_of(const Node& node) {
  return SoftContext::from(node.context.get());
}

/// The amount of memory that the system uses for the memory that peers map.
std::size_t held_bytes(const Node& node) {
  struct stat file {};
  EXPECT_EQ(fstat(context_of(node).memory().arena_fd(Arena::kPages), &file), 0);
  return static_cast<std::size_t>(file.st_blocks) * 512;
}

bool all_are(const Memory& memory, std::byte value) {
  return std::all_of(memory.data, memory.data + memory.size, [value](std::byte byte) { return byte == value; });
}

template <typename Condition>
bool comes_true(Condition&& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    sched_yield();
  }
  return true;
}

/// A target to which the child sends WRITEs. The child is stopped in the middle of a WRITE.
struct StoppedInAWrite {
  Child child{write_until_refused};
  Node node;
  std::unique_ptr<Qp> qp = std::make_unique<Qp>(node);
  std::unique_ptr<Memory> memory = std::make_unique<Memory>(node, kLongMessage);

  StoppedInAWrite() {
    introduce(child.line(), *qp, *memory);
    stop_at_work(child, *qp);
  }
  /// Continues the child. Returns the status of its last request.
  ibv_wc_status outcome() {
    child.resume();
    return static_cast<ibv_wc_status>(child.line().receive().qpn);
  }
};

TEST(Stragglers, DeregisteredMemoryIsReused) {
  StoppedInAWrite scene;
  scene.memory.reset();
  Memory next(scene.node, kLongMessage);
  std::memset(next.data, static_cast<int>(kOwn), next.size);
  EXPECT_EQ(scene.outcome(), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(scene.child.wait(), 0);
  EXPECT_TRUE(all_are(next, kOwn)) << "the peer has written to memory that was given out again";
}

TEST(Stragglers, MemoryIsReturnedWhenThePeerContinues) {
  StoppedInAWrite scene;
  const std::size_t held = held_bytes(scene.node);
  scene.memory.reset();
  EXPECT_EQ(held_bytes(scene.node), held) << "the peer still writes there";
  (void)scene.outcome();
  EXPECT_TRUE(comes_true([&] { return held_bytes(scene.node) <= held - kLongMessage; }));
}

TEST(Stragglers, MemoryIsReturnedWhenThePeerDies) {
  StoppedInAWrite scene;
  const std::size_t held = held_bytes(scene.node);
  scene.memory.reset();
  scene.qp.reset();
  EXPECT_EQ(held_bytes(scene.node), held);
  scene.child.kill();
  EXPECT_TRUE(comes_true([&] { return held_bytes(scene.node) <= held - kLongMessage; }));
  EXPECT_TRUE(comes_true([&] { return !context_of(scene.node).stragglers().any(); }))
      << "one that was suspected at last";
}

TEST(Stragglers, MemoryAllocatedAfterTheQueuePairsEndDoesNotWait) {
  StoppedInAWrite scene;
  scene.qp.reset();
  const std::size_t held = held_bytes(scene.node);
  for (int i = 0; i < 100; ++i) {
    Memory later(scene.node, kLongMessage);
    std::memset(later.data, static_cast<int>(kOwn), later.size);
  }
  EXPECT_EQ(held_bytes(scene.node), held);
}

/// The peer can still write to the memory of a destroyed queue pair.
TEST(Stragglers, MemoryIsKeptAfterTheQueuePairIsDestroyed) {
  StoppedInAWrite scene;
  scene.qp.reset();
  scene.memory.reset();
  Memory next(scene.node, kLongMessage);
  std::memset(next.data, static_cast<int>(kOwn), next.size);
  Qp other(scene.node);  // other number and memory: the peer cannot reach it
  expect_end_of_connection(scene.outcome());
  EXPECT_EQ(scene.child.wait(), 0);
  EXPECT_TRUE(all_are(next, kOwn));
  EXPECT_EQ(SoftQp::from(other.qp.get()).as_tcp_owner()->messages_arrived(), 0U);
}

TEST(Stragglers, TheDeviceIsClosed) {
  StoppedInAWrite scene;
  scene.memory.reset();
  scene.qp.reset();
  scene.node.pd.reset();
  scene.node.context.reset();
  expect_end_of_connection(scene.outcome());
  EXPECT_EQ(scene.child.wait(), 0);
}

TEST(Stragglers, ReregistrationIsRefused) {
  StoppedInAWrite scene;
  EXPECT_EQ(rereg_mr(scene.memory->mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(scene.outcome(), IBV_WC_REM_ACCESS_ERR) << "the key is not valid any more";
}

TEST(Stragglers, AResetIsRefusedUntilThePeerIsDone) {
  StoppedInAWrite scene;
  EXPECT_EQ(scene.qp->to_state(IBV_QPS_RESET), EBUSY);
  EXPECT_EQ(state_of(*scene.qp), IBV_QPS_ERR);
  expect_end_of_connection(scene.outcome());
  EXPECT_TRUE(comes_true([&] { return scene.qp->to_state(IBV_QPS_RESET) == 0; }));
  EXPECT_EQ(state_of(*scene.qp), IBV_QPS_RESET);
}

TEST(Stragglers, ReceivesAreFlushedWithoutThem) {
  StoppedInAWrite scene;
  ASSERT_EQ(scene.qp->post_recv(scene.memory->slice(0, 8), 7), 0);
  ASSERT_EQ(scene.qp->to_state(IBV_QPS_ERR), 0);
  const ibv_wc wc = scene.qp->next();
  EXPECT_EQ(wc.wr_id, 7U);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

/// A process's own memory is written by system calls, which finish even if the process is stopped.
TEST(Stragglers, TheApplicationsMemoryIsNoLongerWritten) {
  Child child(write_until_refused);
  Node node;
  Qp qp(node);
  Memory memory(node, kLongMessage, kAllRemote, true);
  introduce(child.line(), qp, memory);
  stop_at_work(child, qp);
  memory.mr.reset();
  std::memset(memory.data, static_cast<int>(kOwn), memory.size);
  child.resume();
  (void)child.line().receive();
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(all_are(memory, kOwn)) << "the peer has written to memory that is not registered any more";
}

/// An initiator that is stopped after it has checked whether it may write by address, and before the system call that
/// writes. Then it does that system call, and another one.
void rest_before_a_call(Line line) {
  const QueueInfo target = line.receive();
  int error = 0;
  const auto peer = Peer::connect(target.qpn, error);
  ASSERT_NE(peer, nullptr) << error;
  const auto remote = peer->attach(target.qpn, 0, error);
  ASSERT_NE(remote, nullptr) << error;
  std::array<std::byte, 8> late{};
  late.fill(kLate);
  const auto write = [&](auto&& meanwhile) {
    const ByAddress mark(*remote->view.shared, false, target.address, late.size(), remote->busy_address);
    meanwhile();
    std::size_t bytes = late.size();
    const int failed = peer->write_by_system_call(late.data(), remote->view.shared->write, bytes, mark.before());
    line.send({static_cast<std::uint32_t>(failed), static_cast<std::uint32_t>(bytes), 0});
  };
  const Hazard hazard(*remote->view.shared, false);
  write([line] {
    line.send({});
    (void)line.receive();
  });
  write([] {});
}

TEST(Stragglers, AWriteByAddressThatHasNotBegunIsWithdrawn) {
  Child child(rest_before_a_call);
  Node node;
  Qp qp(node);
  const Qp other(node);
  qp.connect_to(other.number());
  Memory memory(node, 4096, kAllRemote, true);
  child.line().send({qp.number(), 0, memory.address()});
  (void)child.line().receive();
  memory.mr.reset();
  EXPECT_TRUE(context_of(node).stragglers().any());
  child.line().send({});
  const QueueInfo first = child.line().receive();
  EXPECT_EQ(first.qpn, static_cast<std::uint32_t>(EFAULT));
  EXPECT_EQ(first.rkey, 0U);
  const QueueInfo again = child.line().receive();
  EXPECT_EQ(again.qpn, 0U) << "only that one is taken back: who may still write goes on";
  EXPECT_EQ(again.rkey, 8U);
  EXPECT_EQ(child.wait(), 0);
}

/// A peer that shares memory continuously announces an address.
TEST(Stragglers, ARepeatedWriteByAddressIsWaitedForOnce) {
  Node node;
  Qp qp(node);
  const Qp other(node);
  qp.connect_to(other.number());
  auto memory = std::make_unique<Memory>(node, 4096, kAllRemote, true);
  int error = 0;
  const auto peer = Peer::connect(qp.number(), error);
  ASSERT_NE(peer, nullptr) << error;
  const auto remote = peer->attach(qp.number(), 0, error);
  ASSERT_NE(remote, nullptr) << error;
  std::atomic<bool> over{false};
  QpShared& shared = *remote->view.shared;
  shared.busy.store(1 | kByAddress);
  std::thread giver([&] {
    while (!over) shared.write.give(memory->address(), 8, remote->busy_address);
    shared.busy.store(0);
  });
  memory->mr.reset();
  over = true;
  giver.join();
}

/// A write that the target takes back is not an error for the initiator.
TEST(Stragglers, AWithdrawnWriteByAddressIsRepeated) {
  constexpr std::uint32_t kWrites = 2000;
  Pair pair;
  Memory from(pair.a_node);
  Memory to(pair.b_node, 4096, kAllRemote, true);
  int error = 0;
  const auto peer = Peer::connect(pair.b.number(), error);
  ASSERT_NE(peer, nullptr) << error;
  const auto remote = peer->attach(pair.b.number(), 0, error);
  ASSERT_NE(remote, nullptr) << error;
  AddressWrite& write = remote->view.shared->write;
  std::atomic<bool> over{false};
  std::atomic<bool> may_take{false};
  std::thread taker([&] {
    while (!over) {
      if (!may_take || !write.is_given()) continue;
      write.take_back();
      may_take = false;
    }
  });
  for (std::uint32_t i = 1; i <= kWrites; ++i) {
    write.take_back();  // clears the state of the previous write
    may_take = true;
    std::memcpy(from.data, &i, sizeof(i));
    ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, i, to.address(), to.mr->rkey), from.slice(0, sizeof(i))), 0);
    ASSERT_EQ(pair.a.next().status, IBV_WC_SUCCESS) << "write " << i;
    ASSERT_EQ(std::memcmp(to.data, &i, sizeof(i)), 0) << "write " << i;
  }
  over = true;
  taker.join();
}

/// The child is stopped in the middle of a SEND. When it continues, it adds a completion and an event to queues that no
/// longer exist.
TEST(Stragglers, AMessageToADestroyedQueuePairHasNoEffect) {
  Child child(send_until_refused);
  Node node;
  QpSettings sleeping;
  sleeping.with_channel = true;
  auto qp = std::make_unique<Qp>(node, sleeping);
  auto memory = std::make_unique<Memory>(node, kLongMessage);
  const auto post = [&] { ASSERT_EQ(qp->post_recv(memory->slice(0, kLongMessage), 1), 0); };
  ASSERT_EQ(ibv_req_notify_cq(qp->cq.get(), 0), 0);
  introduce(child.line(), *qp, *memory);
  post();
  stop_at_work(child, *qp, [&] {
    if (!qp->poll(1).empty()) post();
  });
  qp.reset();
  memory.reset();
  Qp next(node, sleeping);
  Memory next_memory(node, kLongMessage);
  ASSERT_EQ(ibv_req_notify_cq(next.cq.get(), 0), 0);
  std::memset(next_memory.data, static_cast<int>(kOwn), next_memory.size);
  child.resume();
  expect_end_of_connection(static_cast<ibv_wc_status>(child.line().receive().qpn));
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(all_are(next_memory, kOwn));
  EXPECT_TRUE(next.poll().empty());
}

/// The child finds the receive that it was filling unchanged, and does not write beyond its end.
TEST(Stragglers, TheDeviceIsClosedInTheMiddleOfAMessage) {
  Child child(send_until_refused);
  Node node;
  auto qp = std::make_unique<Qp>(node);
  auto memory = std::make_unique<Memory>(node, kLongMessage);
  introduce(child.line(), *qp, *memory);
  stop_at_work(child, *qp, [&] {
    (void)qp->poll();
    std::array<ibv_sge, 4> pieces{};
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i] = memory->slice(i * kLongMessage / 4, kLongMessage / 4);
    (void)qp->post_recv(pieces, 1);
  });
  memory.reset();
  qp.reset();
  node.pd.reset();
  node.context.reset();
  child.resume();
  expect_end_of_connection(static_cast<ibv_wc_status>(child.line().receive().qpn));
  EXPECT_EQ(child.wait(), 0);
}

/// A stopped peer has taken a receive of a shared queue. The receive is available again after the peer has released it.
TEST(Stragglers, ASharedReceiveIsReturned) {
  for (const bool goes_on : {true, false}) {
    Child child(send_until_refused);
    Node node;
    ibv_srq_init_attr init{};
    init.attr = {1, 1, 0};
    const verbs::SrqHandle srq(api(), api().create_srq(node.pd.get(), &init));
    QpSettings settings;
    settings.srq = srq.get();
    auto qp = std::make_unique<Qp>(node, settings);
    Memory memory(node, kLongMessage);
    const auto post = [&] { return post_shared_receive(srq.get(), 1, memory.slice(0, kLongMessage)); };
    ASSERT_EQ(post(), 0);
    introduce(child.line(), *qp, memory);
    stop_at_work(child, *qp, [&] {
      if (qp->poll(1).empty()) return;
      ASSERT_EQ(post(), 0);
    });
    qp.reset();
    if (goes_on) {
      child.resume();
    } else {
      child.kill();
    }
    Pair pair({}, {});
    Qp taker(node, settings);
    Node sender_node;
    Qp sender(sender_node);
    taker.connect_to(sender.number());
    sender.connect_to(taker.number());
    Memory source(sender_node, kLongMessage);
    (void)comes_true([&] { return post() == 0 || !context_of(node).stragglers().any(); });
    ASSERT_EQ(sender.post(send_request(2), source.slice(0, kLongMessage)), 0);
    EXPECT_EQ(sender.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(taker.next().status, IBV_WC_SUCCESS);
  }
}

/// Senders of datagrams take turns at the queue pair. A stopped sender holds its turn.
TEST(Stragglers, AQueuePairOfDatagramsIsDestroyed) {
  Child child(send_datagrams);
  Node node;
  auto qp = std::make_unique<Qp>(node, kUd);
  auto memory = std::make_unique<Memory>(node);
  qp->get_ready();
  child.line().send({qp->number(), 0, 0});
  while (!SoftQp::from(qp->qp.get()).initiators().is_busy()) sched_yield();
  stop_at_work(child, *qp);
  memory.reset();
  qp.reset();
  EXPECT_TRUE(context_of(node).stragglers().any());
  child.resume();
  EXPECT_TRUE(comes_true([&] { return !context_of(node).stragglers().any(); }));
}

}  // namespace
}  // namespace rdmacomm::softdev::test
