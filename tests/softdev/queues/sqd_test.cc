// The send queue drained (SQD): requests that have begun are completed, others wait.
#include <cerrno>

#include "softdev/tcp/tcp_raw_client.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// Returns an errno value.
int drain(Qp& qp, bool notify) {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_SQD;
  attributes.en_sqd_async_notify = notify ? 1 : 0;
  return api().modify_qp(qp.qp.get(), &attributes, IBV_QP_STATE | (notify ? IBV_QP_EN_SQD_ASYNC_NOTIFY : 0));
}

int resume(Qp& qp) {
  return qp.to_state(IBV_QPS_RTS);
}

bool is_draining(const Qp& qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(api().query_qp(qp.qp.get(), &attributes, IBV_QP_STATE, &init), 0);
  return attributes.sq_draining != 0;
}

void expect_drained(const Qp& qp) {
  ASSERT_TRUE(readable(qp.node.context->async_fd, 20'000));
  ibv_async_event event{};
  ASSERT_EQ(api().get_async_event(qp.node.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
  EXPECT_EQ(event.element.qp, qp.qp.get());
  api().ack_async_event(&event);
}

/// Changes the path to the GID entry `index`, at both ends of the path.
int move_to_gid(Qp& qp, std::uint32_t index) {
  ibv_gid_entry gid{};
  EXPECT_EQ(api().query_gid_entry(qp.node.context.get(), 1, index, &gid), 0);
  ibv_qp_attr attributes{};
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.grh.dgid = gid.gid;
  attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(index);
  return api().modify_qp(qp.qp.get(), &attributes, IBV_QP_AV);
}

class Sqd : public ::testing::Test {
 public:
  explicit Sqd(const char* wire = "auto") : wire_(wire) {}

 private:
  const WireVariable wire_;

 protected:
  void SetUp() override {
    ASSERT_EQ(a().post(send_request(9), local.slice(0, 8)), 0);  // not received yet
    EXPECT_TRUE(a().poll().empty());
  }
  void send(std::uint64_t id) { ASSERT_EQ(a().post(send_request(id), local.slice(0, 8)), 0); }
  void receive(std::uint64_t id) { ASSERT_EQ(b().post_recv(remote.slice(0, 8), id), 0); }
  Qp& a() { return pair.a; }
  Qp& b() { return pair.b; }

  Pair pair;
  Memory local{pair.a_node};
  Memory remote{pair.b_node};
};

struct SqdOverTcp : Sqd {
  SqdOverTcp() : Sqd("tcp") {}
};

TEST(SqdWithoutRequests, IsDrainedAtOnce) {
  Pair pair;
  ASSERT_EQ(drain(pair.a, true), 0);
  expect_drained(pair.a);
  EXPECT_FALSE(is_draining(pair.a));
  ASSERT_EQ(resume(pair.a), 0);
  ASSERT_EQ(drain(pair.a, false), 0);
  EXPECT_FALSE(has_event(pair.a_node)) << "nobody asked for it";
}

TEST_F(Sqd, CompletesTheRequestThatHasBegun) {
  send(10);
  ASSERT_EQ(drain(a(), true), 0);
  EXPECT_TRUE(is_draining(a()));
  EXPECT_FALSE(has_event(pair.a_node));
  receive(1);
  receive(2);
  EXPECT_EQ(a().next().wr_id, 9U);
  expect_drained(a());
  EXPECT_FALSE(is_draining(a()));
  EXPECT_TRUE(a().poll().empty()) << "the second request has not begun";
  EXPECT_EQ(b().poll().size(), 1U);
  send(11);
  EXPECT_TRUE(a().poll().empty());
  receive(3);
  ASSERT_EQ(resume(a()), 0);
  EXPECT_EQ(a().next().wr_id, 10U);
  EXPECT_EQ(a().next().wr_id, 11U);
  EXPECT_FALSE(has_event(pair.a_node));
}

TEST_F(Sqd, CanEndBeforeTheQueueIsDrained) {
  ASSERT_EQ(drain(a(), true), 0);
  ASSERT_EQ(resume(a()), 0);
  receive(1);
  EXPECT_EQ(a().next().wr_id, 9U);
  EXPECT_FALSE(has_event(pair.a_node));
}

TEST_F(Sqd, EndsWithoutAnEventIfTheQueuePairFails) {
  send(10);
  ASSERT_EQ(drain(a(), true), 0);
  ASSERT_EQ(a().to_state(IBV_QPS_ERR), 0);
  EXPECT_EQ(a().next().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(a().next().status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_FALSE(has_event(pair.a_node));
}

TEST_F(Sqd, LetsBothEndsMoveToAnotherPath) {
  receive(1);
  EXPECT_EQ(a().next().wr_id, 9U);
  for (Qp* const qp : {&a(), &b()}) {
    ASSERT_EQ(drain(*qp, false), 0);
    ASSERT_EQ(move_to_gid(*qp, 0), 0);
    ASSERT_EQ(resume(*qp), 0);
  }
  receive(2);
  send(10);
  EXPECT_EQ(a().next().status, IBV_WC_SUCCESS);
}

TEST_F(Sqd, APathThatOnlyOneEndHasLeadsNowhere) {
  receive(1);
  EXPECT_EQ(a().next().wr_id, 9U);
  ASSERT_EQ(drain(a(), false), 0);
  ASSERT_EQ(move_to_gid(a(), 0), 0);
  ASSERT_EQ(resume(a()), 0);
  receive(2);
  send(10);
  EXPECT_EQ(a().next().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(SqdInRts, TheAddressCannotChange) {
  Pair pair;
  EXPECT_EQ(move_to_gid(pair.a, 0), EINVAL);
}

TEST_F(SqdOverTcp, CompletesAllRequestsThatWereSent) {
  receive(1);
  EXPECT_EQ(a().next().wr_id, 9U);  // they have a connection now
  send(10);
  send(11);
  ASSERT_EQ(drain(a(), true), 0);
  send(12);
  receive(2);
  receive(3);
  EXPECT_EQ(a().next().wr_id, 10U);
  EXPECT_EQ(a().next().wr_id, 11U);
  expect_drained(a());
  receive(4);
  EXPECT_TRUE(a().poll().empty());
  ASSERT_EQ(resume(a()), 0);
  EXPECT_EQ(a().next().wr_id, 12U);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
