// Completion queues that get more completions than they have places for.
#include <poll.h>

#include <cerrno>
#include <vector>

#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr int kOverrunDepth = 4;

/// A queue pair connected to itself, whose completion queue is small.
struct OverrunScene {
  Node node;
  Memory memory{node};
  Qp loop{node};

  explicit OverrunScene(std::uint32_t flags = 0, bool signal_all = true) {
    ibv_cq_init_attr_ex wanted{};
    wanted.cqe = kOverrunDepth;
    wanted.wc_flags = IBV_WC_STANDARD_FLAGS;
    wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    wanted.flags = flags;
    loop.qp.reset();
    loop.cq = verbs::CqHandle(api(), ibv_cq_ex_to_cq(ibv_create_cq_ex(node.context.get(), &wanted)));
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = loop.cq.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {16, 16, 1, 1, 0};
    init.sq_sig_all = signal_all ? 1 : 0;
    loop.qp = verbs::QpHandle(api(), api().create_qp(node.pd.get(), &init));
    loop.connect_to(loop.number());
  }
  void write(int times) {
    for (int i = 0; i < times; ++i) {
      const auto wr = rdma_request(IBV_WR_RDMA_WRITE, 1, memory.address(64), memory.mr->rkey);
      ASSERT_EQ(loop.post(wr, memory.slice(0, 8)), 0);
    }
  }
  int poll() {
    std::vector<ibv_wc> found(16);
    return ibv_poll_cq(loop.cq.get(), 16, found.data());
  }
  void expect_overrun() {
    EXPECT_EQ(poll(), -1);
    EXPECT_EQ(state_of(loop), IBV_QPS_ERR);
    ibv_async_event event{};
    ASSERT_EQ(api().get_async_event(node.context.get(), &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
    EXPECT_EQ(event.element.cq, loop.cq.get());
    api().ack_async_event(&event);
    ASSERT_EQ(api().get_async_event(node.context.get(), &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_FATAL);
    EXPECT_EQ(event.element.qp, loop.qp.get());
    api().ack_async_event(&event);
    pollfd more{node.context->async_fd, POLLIN, 0};
    EXPECT_EQ(::poll(&more, 1, 0), 0) << "each is told once";
    EXPECT_EQ(poll(), -1) << "it does not come back";
  }
};

TEST(Overrun, AFullQueueIsNoOverrun) {
  OverrunScene scene;
  scene.write(kOverrunDepth);
  EXPECT_EQ(scene.poll(), kOverrunDepth);
  scene.write(kOverrunDepth);
  EXPECT_EQ(scene.poll(), kOverrunDepth);
  EXPECT_EQ(state_of(scene.loop), IBV_QPS_RTS);
}

TEST(Overrun, OneMoreSendFailsTheQueueAndItsQueuePairs) {
  OverrunScene scene;
  scene.write(kOverrunDepth + 1);
  scene.expect_overrun();
}

TEST(Overrun, ReceiveCompletionsCount) {
  OverrunScene scene(0, false);
  for (std::uint64_t id = 0; id <= kOverrunDepth; ++id)
    ASSERT_EQ(scene.loop.post_recv(scene.memory.slice(64, 8), id), 0);
  for (int i = 0; i < kOverrunDepth; ++i) ASSERT_EQ(scene.loop.post(send_request(1), scene.memory.slice(0, 8)), 0);
  EXPECT_EQ(scene.poll(), kOverrunDepth);
  for (std::uint64_t id = 0; id < kOverrunDepth; ++id)
    ASSERT_EQ(scene.loop.post_recv(scene.memory.slice(64, 8), id), 0);
  for (int i = 0; i <= kOverrunDepth; ++i) ASSERT_EQ(scene.loop.post(send_request(1), scene.memory.slice(0, 8)), 0);
  scene.expect_overrun();
}

TEST(Overrun, RequestsWithoutACompletionDoNotCount) {
  OverrunScene scene(0, false);
  scene.write(3 * kOverrunDepth);
  EXPECT_EQ(scene.poll(), 0);
  EXPECT_EQ(state_of(scene.loop), IBV_QPS_RTS);
}

TEST(Overrun, TheCheckCanBeDisabled) {
  OverrunScene scene(IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN);
  scene.write(3 * kOverrunDepth);
  EXPECT_EQ(scene.poll(), 3 * kOverrunDepth);
}

TEST(Overrun, IsAnErrorOfTheCallsThatPoll) {
  OverrunScene scene;
  scene.write(kOverrunDepth + 1);
  ibv_poll_cq_attr none{};
  ibv_cq_ex* const calls = reinterpret_cast<ibv_cq_ex*>(scene.loop.cq.get());
  EXPECT_EQ(ibv_start_poll(calls, &none), EIO);
}

TEST(Overrun, ALargerQueueHoldsMore) {
  OverrunScene scene;
  ASSERT_EQ(resize_cq(scene.loop.cq.get(), 2 * kOverrunDepth), 0);
  scene.write(2 * kOverrunDepth);
  EXPECT_EQ(scene.poll(), 2 * kOverrunDepth);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
