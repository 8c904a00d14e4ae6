// Releasing resources that peers are using: the device waits for the peers, and wakes sleeping waiters when they have
// finished.

#include <atomic>
#include <memory>
#include <thread>

#include "base/sanitizer.h"
#include "softdev/local/link_terms.h"
#include "softdev/shared/hazard.h"
#include "softdev/shared/layout.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

// In bytes. A copy takes milliseconds. Next to other work it takes much longer, and under ThreadSanitizer even more. It
// must not take as long as the device waits for a peer that copies.
#ifdef RDMACOMM_THREAD_SANITIZER
constexpr std::size_t kLongWrite = 4 << 20;
#else
constexpr std::size_t kLongWrite = 16 << 20;
#endif

/// A WRITE of kLongWrite bytes, posted by a separate thread. The WRITE is in progress when the constructor returns.
class LongWrite {
 public:
  LongWrite(Qp& initiator, Memory& from, const Memory& to) : last_(to.data[kLongWrite - 1]) {
    std::memset(from.data, 2, from.size);
    const ibv_send_wr write = rdma_request(IBV_WR_RDMA_WRITE, 1, to.address(), to.mr->rkey);
    thread_ =
        std::thread([&initiator, write, slice = from.slice(0, kLongWrite)] { (void)initiator.post(write, slice); });
    const std::atomic_ref<unsigned char> first(*reinterpret_cast<unsigned char*>(to.data));
    while (first.load() != 2) sched_yield();
  }
  ~LongWrite() { thread_.join(); }
  /// The last byte is written last. True does not mean that the post has returned; it releases the target shortly
  /// before it returns.
  [[nodiscard]] bool has_arrived() const { return last_ == std::byte{2}; }

 private:
  const std::byte& last_;
  std::thread thread_;
};

void take_event(Qp& qp) {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(api().get_cq_event(qp.channel.get(), &cq, &context), 0);
  api().ack_cq_events(cq, 1);
}

TEST(Hazards, DeregistrationWaitsForAWriteInProgress) {
  Pair pair;
  Memory from(pair.a_node, kLongWrite);
  Memory to(pair.b_node, kLongWrite);
  const LongWrite write(pair.a, from, to);
  to.mr.reset();
  EXPECT_TRUE(write.has_arrived());
}

TEST(Hazards, DeregistrationWaitsForAnOwnWrite) {
  Pair pair;
  Memory from(pair.a_node, kLongWrite);
  Memory to(pair.b_node, kLongWrite);
  const LongWrite write(pair.a, from, to);
  from.mr.reset();
  EXPECT_TRUE(write.has_arrived());
}

/// An abandoned initiator retries into the block of a destroyed queue pair. The next queue pair must not use the same
/// block, or its initiator's flag would be cleared.
TEST(Hazards, AnInitiatorLeftBehindDoesNotHarmTheNextQueuePair) {
  Node behind_node;
  Node initiator_node;
  Node target_node;
  QpSettings forever;
  forever.timeout = 0;
  Qp behind(behind_node, forever);
  Qp initiator(initiator_node);
  Memory small(behind_node);
  Memory from(initiator_node, kLongWrite);
  Memory to(target_node, kLongWrite);
  auto first = std::make_unique<Qp>(target_node);
  behind.connect_to(first->number());
  first->connect_to(behind.number());
  first.reset();
  Qp second(target_node);
  initiator.connect_to(second.number());
  second.connect_to(initiator.number());
  ASSERT_EQ(behind.post(rdma_request(IBV_WR_RDMA_WRITE, 1, to.address(), to.mr->rkey), small.slice(0, 8)), 0);
  const LongWrite write(initiator, from, to);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(behind.poll().empty());  // each poll is a retry
  to.mr.reset();
  EXPECT_TRUE(write.has_arrived());
}

TEST(Hazards, DeregistrationWaitsForTheDevicesOwnThreads) {
  Pair pair;
  Memory from(pair.a_node, kLongWrite);
  Memory to(pair.b_node, kLongWrite);
  std::memset(from.data, 2, from.size);
  ASSERT_EQ(pair.a.post(send_request(1), from.slice(0, kLongWrite)), 0);  // waits for a receive
  ASSERT_EQ(pair.b.post_recv(to.slice(0, kLongWrite), 2), 0);             // the retrying thread copies
  const std::atomic_ref<unsigned char> first(*reinterpret_cast<unsigned char*>(to.data));
  while (first.load() != 2) sched_yield();
  from.mr.reset();
  api().free_memory(pair.a_node.context.get(), from.data, from.size, false);
  from.data = nullptr;
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
}

TEST(Hazards, FlushWakesTheSleeperOnceTheInitiatorIsDone) {
  QpSettings sleeping;
  sleeping.with_channel = true;
  Pair pair({}, sleeping);
  Memory from(pair.a_node, kLongWrite);
  Memory to(pair.b_node, kLongWrite);
  Memory inbox(pair.b_node);
  ASSERT_EQ(pair.b.post_recv(inbox.slice(0, 8), 7), 0);
  const LongWrite write(pair.a, from, to);
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 0), 0);
  ASSERT_EQ(pair.b.to_state(IBV_QPS_ERR), 0);
  std::vector<ibv_wc> flushed;
  while (flushed.empty()) {
    ASSERT_TRUE(readable(pair.b.channel->fd, 20'000)) << "asleep with a flush to come";
    take_event(pair.b);
    ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 0), 0);
    flushed = pair.b.poll();
  }
  EXPECT_EQ(flushed.front().wr_id, 7U);
  EXPECT_EQ(flushed.front().status, IBV_WC_WR_FLUSH_ERR);
}

/// An initiator starts a request, and the application polls, while the queue pair changes to the error state: each
/// receive is either filled or flushed.
TEST(Hazards, AReceiveThatAnInitiatorMayStillFillIsNotFlushed) {
  QpShared target{};
  std::atomic<ibv_qp_state> state{IBV_QPS_RTS};
  target.link.store(link_word(7, 8, Service::kReliable));
  bool looked = false;
  end_link(target, state, [&] {
    looked = true;
    EXPECT_EQ(target.link.load(), 0U) << "an initiator that comes now is let in";
    EXPECT_NE(state.load(), IBV_QPS_ERR) << "a poll flushes, though an initiator's flag may not be seen yet";
  });
  EXPECT_TRUE(looked);
  EXPECT_EQ(state.load(), IBV_QPS_ERR);
  EXPECT_EQ(target.link.load(), 0U);
}

/// The serving thread of a context that is its own peer gets an atomic request while another queue pair fails.
TEST(Hazards, AFailureOfOneQueuePairDoesNotDelayAnother) {
  Node node;
  Qp a(node);
  Qp b(node);
  Qp c(node);
  Qp d(node);
  a.connect_to(b.number());
  b.connect_to(a.number());
  c.connect_to(d.number());
  d.connect_to(c.number());
  Memory memory(node);
  Memory own(node, 4096, kAllRemote, true);
  std::thread atomics([&] {
    ibv_wc_status status = IBV_WC_SUCCESS;
    while (status == IBV_WC_SUCCESS) {
      (void)a.post(atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 3, own.address(), own.mr->rkey, 1), memory.slice(0, 8));
      status = a.next().status;
    }
    // b's bad request brings both ends down: a is flushed, or finds that b does not answer any more.
    EXPECT_TRUE(status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RETRY_EXC_ERR) << status;
  });
  const std::atomic_ref<std::uint64_t> counted(*reinterpret_cast<std::uint64_t*>(own.data));
  while (counted.load() < 10) sched_yield();
  ASSERT_EQ(b.post(rdma_request(IBV_WR_RDMA_WRITE, 2, memory.address(), 0x12345), memory.slice(64, 8)), 0);
  atomics.join();
  ASSERT_EQ(c.post(rdma_request(IBV_WR_RDMA_WRITE, 9, memory.address(128), memory.mr->rkey), memory.slice(64, 8)), 0);
  EXPECT_EQ(c.next().status, IBV_WC_SUCCESS);
}

/// For the thread that carries out other hosts' requests. The initiator whose turn it is may be stopped.
TEST(ContendedHazard, AServingThreadDoesNotWait) {
  QpShared target{};
  const ContendedHazard first(target, 1);
  ASSERT_TRUE(first);
  {
    const ContendedHazard second(target, 2, false);
    EXPECT_FALSE(second);
  }
  EXPECT_EQ(target.busy.load(), 1U) << "it is still the first one's";
}

}  // namespace
}  // namespace rdmacomm::softdev::test
