// Requests by the calls ibv_wr_* (ibv_wr_post(3)).
#include <cerrno>
#include <cstring>
#include <thread>

#include "softdev/queues/request_builder.h"
#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// A queue pair that supports these calls, connected to itself, with memory.
struct RequestCallsScene {
  Node node;
  Qp loop{node, {.depth = 4}};
  ibv_qp_ex* calls = nullptr;
  Memory source{node};
  Memory target{node};

  explicit RequestCallsScene(std::uint64_t operations = RequestBuilder::operations_of(IBV_QPT_RC)) {
    ibv_qp_init_attr_ex init{};
    init.send_cq = init.recv_cq = loop.cq.get();
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 4, 4, 64};
    init.sq_sig_all = 1;
    init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    init.pd = node.pd.get();
    init.send_ops_flags = operations;
    loop.qp = verbs::QpHandle(api(), ibv_create_qp_ex(node.context.get(), &init));
    calls = qp_to_qp_ex(loop.qp.get());
    loop.connect_to(loop.number());
    source.fill(1);
  }
  /// Begins a WRITE of `count` bytes from and to `offset`.
  void write(std::uint64_t id, std::size_t offset, std::size_t count) {
    calls->wr_id = id;
    calls->wr_flags = 0;
    ibv_wr_rdma_write(calls, target.mr->rkey, target.address(offset));
    ibv_wr_set_sge(calls, source.mr->lkey, source.address(offset), static_cast<std::uint32_t>(count));
  }
  [[nodiscard]] bool written(std::size_t offset, std::size_t count) const {
    return std::memcmp(source.data + offset, target.data + offset, count) == 0;
  }
};

TEST(RequestCalls, PostEachOperation) {
  RequestCallsScene scene;
  std::uint64_t counter = 40;
  std::memcpy(scene.target.data + 512, &counter, sizeof(counter));
  ASSERT_EQ(scene.loop.post_recv(scene.target.slice(1024, 64), 90), 0);
  ASSERT_EQ(scene.loop.post_recv(scene.target.slice(2048, 64), 91), 0);
  ASSERT_EQ(scene.loop.post_recv(scene.target.slice(3072, 64), 92), 0);
  const ibv_sge to = scene.source.slice(256, 8);
  const auto post = [&](auto&& request) {
    ibv_wr_start(scene.calls);
    scene.calls->wr_id = 7;
    scene.calls->wr_flags = 0;
    request(scene.calls);
    EXPECT_EQ(ibv_wr_complete(scene.calls), 0);
  };
  const auto sent = [&] { return scene.loop.next(); };

  post([&](ibv_qp_ex* qp) {
    ibv_wr_rdma_write(qp, scene.target.mr->rkey, scene.target.address());
    ibv_wr_set_sge(qp, scene.source.mr->lkey, scene.source.address(), 100);
  });
  EXPECT_EQ(sent().opcode, IBV_WC_RDMA_WRITE);
  EXPECT_TRUE(scene.written(0, 100));
  post([&](ibv_qp_ex* qp) {
    ibv_wr_rdma_read(qp, scene.target.mr->rkey, scene.target.address(512));
    ibv_wr_set_sge_list(qp, 1, &to);
  });
  EXPECT_EQ(sent().opcode, IBV_WC_RDMA_READ);
  EXPECT_EQ(std::memcmp(scene.source.data + 256, &counter, 8), 0);
  post([&](ibv_qp_ex* qp) {
    ibv_wr_atomic_fetch_add(qp, scene.target.mr->rkey, scene.target.address(512), 2);
    ibv_wr_set_sge_list(qp, 1, &to);
  });
  EXPECT_EQ(sent().opcode, IBV_WC_FETCH_ADD);
  post([&](ibv_qp_ex* qp) {
    ibv_wr_atomic_cmp_swp(qp, scene.target.mr->rkey, scene.target.address(512), 42, 43);
    ibv_wr_set_sge_list(qp, 1, &to);
  });
  EXPECT_EQ(sent().opcode, IBV_WC_COMP_SWAP);
  std::memcpy(&counter, scene.target.data + 512, sizeof(counter));
  EXPECT_EQ(counter, 43U);

  struct Message {
    std::uint64_t id;
    std::size_t offset;
    void (*begin)(RequestCallsScene& scene);
    unsigned flags;
  };
  const Message messages[] = {
      {90, 1024, [](RequestCallsScene& s) { ibv_wr_send(s.calls); }, 0},
      {91, 2048, [](RequestCallsScene& s) { ibv_wr_send_imm(s.calls, htonl(5)); }, IBV_WC_WITH_IMM},
      {92, 0,
       [](RequestCallsScene& s) { ibv_wr_rdma_write_imm(s.calls, s.target.mr->rkey, s.target.address(), htonl(5)); },
       IBV_WC_WITH_IMM},
  };
  for (const Message& message : messages) {
    post([&](ibv_qp_ex* qp) {
      message.begin(scene);
      ibv_wr_set_sge(qp, scene.source.mr->lkey, scene.source.address(), 32);
    });
    const ibv_wc first = scene.loop.next();
    const ibv_wc second = scene.loop.next();
    const ibv_wc& received = first.wr_id == 7 ? second : first;
    EXPECT_EQ(received.wr_id, message.id);
    EXPECT_EQ(received.wc_flags, message.flags);
    EXPECT_EQ(message.flags == 0 ? htonl(5) : received.imm_data, htonl(5));
    EXPECT_EQ(std::memcmp(scene.target.data + message.offset, scene.source.data, 32), 0);
  }
}

TEST(RequestCalls, InlineDataIsTakenByTheCall) {
  RequestCallsScene scene;
  char text[] = "hello, world";
  ibv_data_buf pieces[] = {{text, 7}, {text + 7, 6}};
  ibv_wr_start(scene.calls);
  ibv_wr_rdma_write(scene.calls, scene.target.mr->rkey, scene.target.address());
  ibv_wr_set_inline_data(scene.calls, text, sizeof(text));
  ibv_wr_rdma_write(scene.calls, scene.target.mr->rkey, scene.target.address(64));
  ibv_wr_set_inline_data_list(scene.calls, 2, pieces);
  std::memset(text, 'x', sizeof(text));
  ASSERT_EQ(ibv_wr_complete(scene.calls), 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(scene.target.data), "hello, world");
  EXPECT_STREQ(reinterpret_cast<const char*>(scene.target.data + 64), "hello, world");
}

TEST(RequestCalls, PostAllRequestsOrNone) {
  RequestCallsScene scene;
  const auto expect_none = [&](int error) {
    EXPECT_EQ(ibv_wr_complete(scene.calls), error);
    EXPECT_FALSE(scene.written(0, 64));
    EXPECT_TRUE(scene.loop.poll().empty());
  };
  ibv_wr_start(scene.calls);  // the fifth does not fit
  for (std::uint64_t i = 0; i < 5; ++i) scene.write(i, 0, 64);
  expect_none(ENOMEM);
  ibv_wr_start(scene.calls);  // more slices than the queue pair allows
  scene.write(1, 0, 64);
  scene.write(2, 64, 64);
  std::vector<ibv_sge> slices(5, scene.source.slice(0, 8));
  ibv_wr_set_sge_list(scene.calls, slices.size(), slices.data());
  expect_none(EINVAL);
  ibv_wr_start(scene.calls);
  scene.write(1, 0, 64);
  ibv_wr_send_tso(scene.calls, nullptr, 0, 0);
  expect_none(EOPNOTSUPP);
  ibv_wr_start(scene.calls);
  scene.write(1, 0, 64);
  ibv_wr_abort(scene.calls);
  EXPECT_FALSE(scene.written(0, 64));

  ibv_wr_start(scene.calls);  // the earlier errors have left nothing behind
  for (std::uint64_t i = 0; i < 4; ++i) scene.write(i, 64 * i, 64);
  ASSERT_EQ(ibv_wr_complete(scene.calls), 0);
  EXPECT_TRUE(scene.written(0, 256));
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(scene.loop.next().wr_id, i);
}

TEST(RequestCalls, OnlyRequestedOperationsArePresent) {
  RequestCallsScene scene(IBV_QP_EX_WITH_SEND);
  ibv_wr_start(scene.calls);
  scene.write(1, 0, 64);
  EXPECT_EQ(ibv_wr_complete(scene.calls), EOPNOTSUPP);

  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = scene.loop.cq.get();
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = scene.node.pd.get();
  init.send_ops_flags = IBV_QP_EX_WITH_TSO;
  EXPECT_EQ(ibv_create_qp_ex(scene.node.context.get(), &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_RX_HASH;
  EXPECT_EQ(ibv_create_qp_ex(scene.node.context.get(), &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  init.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  EXPECT_EQ(ibv_create_qp_ex(scene.node.context.get(), &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(RequestCalls, AQueuePairCreatedWithoutThemHasNone) {
  Node node;
  Qp qp(node);
  EXPECT_EQ(qp_to_qp_ex(qp.qp.get()), nullptr);
}

TEST(RequestCalls, AllowOneThreadAtATime) {
  RequestCallsScene scene;
  const auto post = [&scene](std::uint64_t id, std::size_t offset) {
    for (int round = 0; round < 500; ++round) {
      ibv_wr_start(scene.calls);
      scene.write(id, offset, 64);
      scene.write(id, offset + 64, 64);
      while (ibv_wr_complete(scene.calls) != 0) {  // full: it contains the other thread's requests
        (void)scene.loop.poll();
        ibv_wr_start(scene.calls);
        scene.write(id, offset, 64);
        scene.write(id, offset + 64, 64);
      }
    }
  };
  std::thread other(post, 1, 0);
  post(2, 128);
  other.join();
  EXPECT_TRUE(scene.written(0, 256));
}

}  // namespace
}  // namespace rdmacomm::softdev::test
