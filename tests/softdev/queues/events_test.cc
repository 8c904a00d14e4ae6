// Completion channels: arming, waking, acknowledging; and asynchronous events.
#include <fcntl.h>

#include <atomic>
#include <thread>

#include "softdev/local/dead_initiator.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

QpSettings sleeping() {
  QpSettings settings;
  settings.with_channel = true;
  return settings;
}

class Channels : public ::testing::Test {
 protected:
  Pair pair{sleeping(), sleeping()};
  Memory local{pair.a_node};
  Memory remote{pair.b_node};

  void send(bool solicited = false) {
    ASSERT_EQ(pair.b.post_recv(remote.slice(0, 8), 1), 0);
    auto wr = send_request(1);
    if (solicited) wr.send_flags = IBV_SEND_SOLICITED;
    ASSERT_EQ(pair.a.post(wr, local.slice(0, 8)), 0);
  }
  void take_event(Qp& qp) {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    ASSERT_EQ(api().get_cq_event(qp.channel.get(), &cq, &context), 0);
    EXPECT_EQ(cq, qp.cq.get());
    EXPECT_EQ(context, &qp);
    api().ack_cq_events(cq, 1);
  }
};

/// Kills an initiator of `target` while it wakes the target's sleeping thread, after it has done `stores` to the shared
/// part of the queue.
template <typename Stores>
void die_while_firing(const Qp& target, const Qp& initiator, Stores&& stores) {
  die_at_work(target.number(), initiator.number(), [&stores](const RemoteQp& remote) { stores(*remote.recv_cq); });
}

TEST_F(Channels, AnInitiatorKilledWhileItFiresLeavesNoThreadAsleep) {
  for (const bool has_counted : {false, true}) {
    ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 0), 0);
    die_while_firing(pair.b, pair.a, [has_counted](CqShared& queue) {
      queue.armed.store(CqShared::kNot);
      if (has_counted) queue.pending_events.fetch_add(1);
    });
    EXPECT_TRUE(readable(pair.b.channel->fd, 20'000)) << has_counted;
    while (readable(pair.b.channel->fd)) take_event(pair.b);  // none of these waits
    ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 0), 0);
    send();
    EXPECT_TRUE(readable(pair.b.channel->fd)) << "armed as before";
    while (readable(pair.b.channel->fd)) take_event(pair.b);
    EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
  }
}

TEST_F(Channels, ASuccessfulSendCompletionIsNotSolicited) {
  ASSERT_EQ(ibv_req_notify_cq(pair.a.cq.get(), 1), 0);
  const auto write = [this](std::uint32_t rkey) {
    ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), rkey), local.slice(0, 8)), 0);
  };
  write(remote.mr->rkey);
  EXPECT_FALSE(readable(pair.a.channel->fd));
  write(remote.mr->rkey + 1);
  EXPECT_TRUE(readable(pair.a.channel->fd)) << "a failure is";
  take_event(pair.a);
}

TEST_F(Channels, AnUnarmedQueueIsSilent) {
  send();
  EXPECT_FALSE(readable(pair.b.channel->fd));
  EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
}

TEST_F(Channels, AnArmedQueueFiresOnce) {
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 0), 0);
  send();
  send();
  EXPECT_TRUE(readable(pair.b.channel->fd));
  take_event(pair.b);
  EXPECT_FALSE(readable(pair.b.channel->fd));
}

TEST_F(Channels, SendCompletionsFireTheOwnQueue) {
  ASSERT_EQ(ibv_req_notify_cq(pair.a.cq.get(), 0), 0);
  send();
  EXPECT_TRUE(readable(pair.a.channel->fd));
  take_event(pair.a);
}

TEST_F(Channels, SolicitedOnlyWaitsForASolicitedMessage) {
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 1), 0);
  send(false);
  EXPECT_FALSE(readable(pair.b.channel->fd));
  send(true);
  EXPECT_TRUE(readable(pair.b.channel->fd));
  take_event(pair.b);
}

TEST_F(Channels, ArmingForSolicitedDoesNotUndoArmingForAll) {
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 0), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 1), 0);
  send(false);
  EXPECT_TRUE(readable(pair.b.channel->fd));
  take_event(pair.b);
}

TEST_F(Channels, ErrorsAndFlushesFire) {
  ASSERT_EQ(pair.b.post_recv(remote.slice(0, 8), 1), 0);
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 0), 0);
  ASSERT_EQ(pair.b.to_state(IBV_QPS_ERR), 0);
  EXPECT_TRUE(readable(pair.b.channel->fd));
  take_event(pair.b);
  EXPECT_EQ(pair.b.next().status, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(Channels, UntakenEventsAreDestroyedWithTheQueue) {
  ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 0), 0);
  send();
  EXPECT_TRUE(readable(pair.b.channel->fd));
  pair.b.qp.reset();
  pair.b.cq.reset();
  EXPECT_FALSE(readable(pair.b.channel->fd));
}

TEST_F(Channels, ArmingAQueueWithoutAChannelChangesNothing) {
  Qp plain(pair.a_node);
  EXPECT_EQ(ibv_req_notify_cq(plain.cq.get(), 0), 0);
  EXPECT_EQ(ibv_req_notify_cq(plain.cq.get(), 1), 0);
}

TEST_F(Channels, ANonBlockingDescriptorReportsThatNothingWaits) {
  ASSERT_EQ(fcntl(pair.b.channel->fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  EXPECT_EQ(api().get_cq_event(pair.b.channel.get(), &cq, &context), -1);
  EXPECT_EQ(errno, EAGAIN);
}

/// Arm, poll again, sleep: none of many wake-ups may be lost.
TEST_F(Channels, NoWakeUpIsLostBetweenTwoThreads) {
  constexpr std::uint64_t kMessages = 3000;
  for (std::uint64_t i = 0; i < 16; ++i) ASSERT_EQ(pair.b.post_recv(remote.slice(0, 8), i), 0);
  std::thread receiver([this] {
    std::uint64_t received = 0;
    while (received < kMessages) {
      ASSERT_EQ(ibv_req_notify_cq(pair.b.cq.get(), 0), 0);
      auto found = pair.b.poll();
      if (found.empty()) {
        ASSERT_TRUE(readable(pair.b.channel->fd, 20'000)) << "lost after " << received;
        take_event(pair.b);
        found = pair.b.poll();
      }
      for (const ibv_wc& wc : found) {
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        ASSERT_EQ(pair.b.post_recv(remote.slice(0, 8), 0), 0);
      }
      received += found.size();
    }
  });
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(pair.a.post(send_request(i), local.slice(0, 8)), 0);
    ASSERT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  }
  receiver.join();
  while (readable(pair.b.channel->fd)) take_event(pair.b);
}

TEST(AsyncEvents, EventsOfADestroyedQueuePairAreDropped) {
  Pair pair;
  Memory local(pair.a_node);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, 0, 1), local.slice(0, 8)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_TRUE(readable(pair.b_node.context->async_fd, 20'000));
  pair.b.qp.reset();
  EXPECT_FALSE(readable(pair.b_node.context->async_fd)) << "ibv_get_async_event would block";
  ASSERT_EQ(fcntl(pair.b_node.context->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event{};
  EXPECT_EQ(api().get_async_event(pair.b_node.context.get(), &event), -1);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
