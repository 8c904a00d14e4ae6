// Completion channels by bare verbs (arming, solicited events), and asynchronous events.
#include <gtest/gtest.h>
#include <poll.h>

#include "contract/async_events.h"

namespace rdmacomm::contract {
namespace {

class EventsTest : public ContractTest {
 protected:
  void SetUp() override { start({.with_event_channel = true}); }

  static bool readable(const ChannelEnd& end, int timeout_ms = 0) {
    pollfd one{end.cq->fd(), POLLIN, 0};
    return ::poll(&one, 1, timeout_ms) == 1;
  }
  /// Whether an event arrives; takes it.
  static bool woken(const ChannelEnd& end) {
    if (!readable(end, patience().poll_timeout_ms())) return false;
    end.cq->consume_events();
    return true;
  }
  static int arm(const ChannelEnd& end, bool solicited_only) {
    return ibv_req_notify_cq(end.cq->get(), solicited_only ? 1 : 0);
  }
  /// Sends one message from left to right, and takes the completions at both ends.
  void send(PostFlags flags = PostFlags::kNone) {
    ASSERT_TRUE(right().channel->post_recv(inbox(right()), {.id = 1}));
    ASSERT_TRUE(left().channel->post_send({}, {.id = 2, .flags = flags}));
    ASSERT_TRUE(left().next().ok());
    ASSERT_TRUE(right().next().ok());
  }
};

TEST_F(EventsTest, AQueueThatIsNotArmedIsSilent) {
  send();
  EXPECT_FALSE(readable(right()));
  EXPECT_FALSE(readable(left()));
}

TEST_F(EventsTest, AnArmedQueueFiresOnceForReceives) {
  ASSERT_EQ(arm(right(), false), 0);
  send();
  EXPECT_TRUE(woken(right()));
  send();
  EXPECT_FALSE(readable(right())) << "it was armed once";
  ASSERT_EQ(arm(right(), false), 0);
  send();
  EXPECT_TRUE(woken(right()));
}

TEST_F(EventsTest, AnArmedQueueFiresForOwnSends) {
  ASSERT_EQ(arm(left(), false), 0);
  send();
  EXPECT_TRUE(woken(left()));
}

TEST_F(EventsTest, SolicitedOnlyWaitsForASolicitedMessage) {
  ASSERT_EQ(arm(right(), true), 0);
  send();
  EXPECT_FALSE(readable(right()));
  if (!has(Trait::kWakesForSolicited)) GTEST_SKIP() << "property: solicited messages wake nobody";
  send(PostFlags::kSolicited);
  EXPECT_TRUE(woken(right()));
}

TEST_F(EventsTest, SolicitedOnlyWaitsForASolicitedWriteWithImmediate) {
  if (!has(Trait::kCarriesImmediateData)) GTEST_SKIP() << "property: no immediate data";
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  ASSERT_EQ(arm(right(), true), 0);
  for (const PostFlags flags : {PostFlags::kNone, PostFlags::kSolicited}) {
    EXPECT_FALSE(readable(right()));
    ASSERT_TRUE(right().channel->post_recv(inbox(right()), {.id = 1}));
    ASSERT_TRUE(
        left().channel->post_write(source.at(0), target.remote_region(), {.id = 2, .immediate = 1, .flags = flags}));
    ASSERT_TRUE(left().next().ok());
    ASSERT_TRUE(right().next().ok());
  }
  EXPECT_TRUE(woken(right()));
}

TEST_F(EventsTest, ArmingForSolicitedDoesNotUndoArmingForAll) {
  if (!has(Trait::kKeepsTheWiderArming)) GTEST_SKIP() << "property: the later arming counts";
  ASSERT_EQ(arm(right(), false), 0);
  ASSERT_EQ(arm(right(), true), 0);
  send();
  EXPECT_TRUE(woken(right()));
}

TEST_F(EventsTest, AFlushFires) {
  ASSERT_TRUE(right().channel->post_recv(inbox(right()), {.id = 1}));
  ASSERT_EQ(arm(right(), false), 0);
  ASSERT_TRUE(right().channel->adapter().to_error().ok());
  EXPECT_TRUE(woken(right()));
  EXPECT_EQ(right().next().error, Errc::kFlushed);
}

TEST_F(EventsTest, AFlushIsASolicitedEvent) {
  ASSERT_TRUE(right().channel->post_recv(inbox(right()), {.id = 1}));
  ASSERT_EQ(arm(right(), true), 0);
  ASSERT_TRUE(right().channel->adapter().to_error().ok());
  if (!has(Trait::kFlushesAreSolicited)) GTEST_SKIP() << "property: a flush wakes nobody who waits for solicited";
  EXPECT_TRUE(woken(right()));
  EXPECT_EQ(right().next().error, Errc::kFlushed);
}

TEST_F(EventsTest, TheResponderGetsAnEventForAnInvalidRequest) {
  if (!has(Trait::kReportsToTheResponder)) GTEST_SKIP() << "property: the responder is not told";
  AsyncEvents events(*right().device);
  const auto source = left().buffer(8);
  const auto target = right().buffer(8);
  RemoteRegion wrong = target.remote_region();
  wrong.rkey ^= 0x55;
  expect_failure(left().channel->post_write(source.at(0), wrong, {.id = 1}), Fault::kRemoteAccess);
  EXPECT_TRUE(events.comes_one_of({IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_FATAL}))
      << "came instead:" << events.seen();
}

TEST_F(EventsTest, AnExchangeWithoutErrorsRaisesNone) {
  AsyncEvents here(*left().device);
  AsyncEvents there(*right().device);
  for (int i = 0; i < 10; ++i) send();
  const std::vector<ibv_event_type> errors = {IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_REQ_ERR, IBV_EVENT_QP_FATAL,
                                              IBV_EVENT_CQ_ERR, IBV_EVENT_DEVICE_FATAL};
  EXPECT_FALSE(here.comes_one_of(errors, Deadline::after({})));
  EXPECT_FALSE(there.comes_one_of(errors, Deadline::after({})));
}

// If a message reaches a queue pair in RTR, a thread that waits for the connection to be complete can continue.
TEST(CommunicationEstablished, IsAnEventAtTheQueuePairInRtr) {
  if (links_by_cm()) GTEST_SKIP() << "rdma_cm connects both ends";
  auto pair = LinkedPair::make();
  ASSERT_TRUE(pair.has_value()) << pair.error().message();
  const ChannelEnd& left = pair->ends.left;
  const ChannelEnd& right = pair->ends.right;
  if (!has(kind_of(*right.device), Trait::kReportsCommEst)) GTEST_SKIP() << "property: no such event";
  AsyncEvents events(*right.device);
  const QpPath path{.local = right.channel->adapter().address(),
                    .remote = left.channel->adapter().address(),
                    .gid_index = right.device->choose_gid()->index,
                    .port = right.device->port()};
  const QpTransition to_rtr = QpTransition::to_rtr({}, path);
  ibv_qp_attr attributes = to_rtr.attributes;
  ASSERT_TRUE(right.channel->post_recv({}, {.id = 1}));
  ASSERT_EQ(right.device->api().modify_qp(right.channel->adapter().qp(), &attributes, to_rtr.mask), 0);
  ASSERT_TRUE(left.channel->adapter().connect(path.local).ok());
  ASSERT_TRUE(left.channel->post_send({}, {.id = 2}));
  EXPECT_TRUE(left.next().ok());
  EXPECT_TRUE(right.next().ok());
  EXPECT_TRUE(events.comes(IBV_EVENT_COMM_EST));
}

}  // namespace
}  // namespace rdmacomm::contract
