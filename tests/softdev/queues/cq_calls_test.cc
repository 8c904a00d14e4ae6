// Completions by ibv_start_poll and related calls (ibv_create_cq_ex(3)), and resizing of completion queues.
#include <arpa/inet.h>

#include <cerrno>
#include <thread>

#include "softdev/queues/cq_cursor.h"
#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// A queue pair connected to itself. Its completion queue supports these calls.
struct CqCallsScene {
  Node node;
  ibv_cq_ex* calls = nullptr;
  Qp loop{node};
  Memory memory{node};

  explicit CqCallsScene(std::uint64_t fields = CqCursor::kFields) {
    loop.qp.reset();
    loop.cq.reset();
    ibv_cq_init_attr_ex init{};
    init.cqe = 64;
    init.wc_flags = fields;
    calls = ibv_create_cq_ex(node.context.get(), &init);
    loop.cq = verbs::CqHandle(api(), ibv_cq_ex_to_cq(calls));
    ibv_qp_init_attr qp_init{};
    qp_init.send_cq = qp_init.recv_cq = loop.cq.get();
    qp_init.qp_type = IBV_QPT_RC;
    qp_init.cap = {16, 16, 1, 1, 0};
    qp_init.sq_sig_all = 1;
    loop.qp = verbs::QpHandle(api(), api().create_qp(node.pd.get(), &qp_init));
    loop.connect_to(loop.number());
  }
  void write(std::uint64_t id) {
    const ibv_send_wr wr = rdma_request(IBV_WR_RDMA_WRITE, id, memory.address(64), memory.mr->rkey);
    ASSERT_EQ(loop.post(wr, memory.slice(0, 8)), 0);
  }
};

TEST(CqCalls, ReadEachFieldOfEachCompletion) {
  CqCallsScene scene;
  ASSERT_EQ(scene.loop.post_recv(scene.memory.slice(512, 64), 1), 0);
  ibv_send_wr send = send_request(2);
  send.opcode = IBV_WR_SEND_WITH_IMM;
  send.imm_data = htonl(77);
  ASSERT_EQ(scene.loop.post(send, scene.memory.slice(0, 24)), 0);

  ibv_poll_cq_attr none{};
  ASSERT_EQ(ibv_start_poll(scene.calls, &none), 0);
  bool sent = false;
  bool received = false;
  int error = 0;
  for (; error == 0; error = ibv_next_poll(scene.calls)) {
    EXPECT_EQ(scene.calls->status, IBV_WC_SUCCESS);
    EXPECT_EQ(ibv_wc_read_vendor_err(scene.calls), 0U);
    EXPECT_EQ(ibv_wc_read_qp_num(scene.calls), scene.loop.number());
    EXPECT_EQ(ibv_wc_read_slid(scene.calls), 0U);
    EXPECT_EQ(ibv_wc_read_sl(scene.calls), 0U);
    EXPECT_EQ(ibv_wc_read_dlid_path_bits(scene.calls), 0U);
    if (scene.calls->wr_id == 2) {
      sent = true;
      EXPECT_EQ(ibv_wc_read_opcode(scene.calls), IBV_WC_SEND);
      continue;
    }
    received = true;
    EXPECT_EQ(scene.calls->wr_id, 1U);
    EXPECT_EQ(ibv_wc_read_opcode(scene.calls), IBV_WC_RECV);
    EXPECT_EQ(ibv_wc_read_wc_flags(scene.calls), static_cast<unsigned>(IBV_WC_WITH_IMM));
    EXPECT_EQ(ibv_wc_read_imm_data(scene.calls), htonl(77));
    EXPECT_EQ(ibv_wc_read_byte_len(scene.calls), 24U);
    EXPECT_EQ(ibv_wc_read_src_qp(scene.calls), scene.loop.number());
  }
  EXPECT_EQ(error, ENOENT);
  ibv_end_poll(scene.calls);
  EXPECT_TRUE(sent && received);
}

TEST(CqCalls, ACompletionsTimeIsWhenItWasPolled) {
  CqCallsScene scene;
  ibv_device_attr_ex attributes{};
  ASSERT_EQ(ibv_query_device_ex(scene.node.context.get(), nullptr, &attributes), 0);
  EXPECT_EQ(attributes.completion_timestamp_mask, UINT64_MAX);
  EXPECT_EQ(attributes.hca_core_clock, 1'000'000U) << "kHz";
  const auto clock_now = [&scene] {
    ibv_values_ex values{IBV_VALUES_MASK_RAW_CLOCK | 1U << 5, {}};
    EXPECT_EQ(ibv_query_rt_values_ex(scene.node.context.get(), &values), 0);
    EXPECT_EQ(values.comp_mask, static_cast<std::uint32_t>(IBV_VALUES_MASK_RAW_CLOCK)) << "what it knows";
    EXPECT_EQ(values.raw_clock.tv_sec, 0);
    return static_cast<std::uint64_t>(values.raw_clock.tv_nsec);
  };
  const auto day_now = [] {
    return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() /
                                      std::chrono::nanoseconds(1));
  };
  scene.write(1);
  scene.write(2);
  const std::uint64_t before = clock_now();
  const std::uint64_t day_before = day_now();
  ibv_poll_cq_attr none{};
  ASSERT_EQ(ibv_start_poll(scene.calls, &none), 0);
  const std::uint64_t first = ibv_wc_read_completion_ts(scene.calls);
  const std::uint64_t first_of_day = ibv_wc_read_completion_wallclock_ns(scene.calls);
  const std::uint64_t between = clock_now();
  ASSERT_EQ(ibv_next_poll(scene.calls), 0);
  const std::uint64_t second = ibv_wc_read_completion_ts(scene.calls);
  ibv_end_poll(scene.calls);
  EXPECT_LE(before, first);
  EXPECT_LE(first, between);
  EXPECT_LE(between, second);
  EXPECT_LE(second, clock_now());
  constexpr std::uint64_t kHour = 3'600'000'000'000;  // that clock may be set
  EXPECT_LE(day_before, first_of_day + kHour);
  EXPECT_LE(first_of_day, day_now() + kHour);
}

TEST(CqCalls, ReadersOfUnrequestedFieldsAreNull) {
  const CqCallsScene scene(IBV_WC_STANDARD_FLAGS);
  EXPECT_EQ(scene.calls->read_completion_ts, nullptr);
  EXPECT_EQ(scene.calls->read_completion_wallclock_ns, nullptr);
}

TEST(CqCalls, AnEmptyQueueNeedsNoEndPoll) {
  CqCallsScene scene;
  ibv_poll_cq_attr none{};
  EXPECT_EQ(ibv_start_poll(scene.calls, &none), ENOENT);
  EXPECT_EQ(ibv_start_poll(scene.calls, &none), ENOENT) << "the first one has not locked it";
  none.comp_mask = 1;
  EXPECT_EQ(ibv_start_poll(scene.calls, &none), EINVAL);
}

TEST(CqCalls, UnreadCompletionsStay) {
  CqCallsScene scene;
  for (std::uint64_t id = 1; id <= 3; ++id) scene.write(id);
  ibv_poll_cq_attr none{};
  ASSERT_EQ(ibv_start_poll(scene.calls, &none), 0);
  EXPECT_EQ(scene.calls->wr_id, 1U);
  ibv_end_poll(scene.calls);
  const auto rest = scene.loop.poll();  // by ibv_poll_cq
  ASSERT_EQ(rest.size(), 2U);
  EXPECT_EQ(rest[0].wr_id, 2U);
}

TEST(CqCalls, AllowOneThreadAtATime) {
  CqCallsScene scene;
  constexpr std::uint64_t kRounds = 2000;
  std::atomic<std::uint64_t> seen{0};
  const auto read = [&scene, &seen] {
    ibv_poll_cq_attr none{};
    while (seen.load() < kRounds) {
      if (ibv_start_poll(scene.calls, &none) != 0) continue;
      do {
        const std::uint64_t id = scene.calls->wr_id;
        EXPECT_EQ(ibv_wc_read_opcode(scene.calls), IBV_WC_RDMA_WRITE);
        EXPECT_EQ(scene.calls->wr_id, id);
        ++seen;
      } while (ibv_next_poll(scene.calls) == 0);
      ibv_end_poll(scene.calls);
    }
  };
  std::thread one(read);
  std::thread other(read);
  const ibv_send_wr wr = rdma_request(IBV_WR_RDMA_WRITE, 1, scene.memory.address(64), scene.memory.mr->rkey);
  for (std::uint64_t posted = 0; posted < kRounds;)
    posted += scene.loop.post(wr, scene.memory.slice(0, 8)) == 0 ? 1 : 0;
  one.join();
  other.join();
  EXPECT_EQ(seen.load(), kRounds);
}

TEST(CqCalls, UnsupportedFlagsAreRefused) {
  Node node;
  const auto refused = [&node](auto change, int error) {
    ibv_cq_init_attr_ex init{};
    init.cqe = 16;
    change(init);
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(node.context.get(), &init), nullptr);
    EXPECT_EQ(errno, error);
  };
  using Init = ibv_cq_init_attr_ex;
  refused([](Init& init) { init.wc_flags = IBV_WC_EX_WITH_CVLAN; }, EOPNOTSUPP);
  refused([](Init& init) { init.comp_mask = 1U << 2; }, EOPNOTSUPP);
  refused(
      [](Init& init) {
        init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
        init.flags = 1U << 20;
      },
      EOPNOTSUPP);
  refused([](Init& init) { init.cqe = 0; }, EINVAL);
  refused([](Init& init) { init.cqe = UINT32_MAX; }, EINVAL);
  refused([](Init& init) { init.comp_vector = 1; }, EINVAL);
}

TEST(CqCalls, ResizingKeepsUnpolledCompletions) {
  CqCallsScene scene;
  scene.write(4);
  ASSERT_EQ(scene.loop.post_recv(scene.memory.slice(64, 8), 6), 0);
  ASSERT_EQ(scene.loop.post(send_request(5), scene.memory.slice(0, 8)), 0);
  EXPECT_EQ(resize_cq(scene.loop.cq.get(), 2), EINVAL) << "two sends and a receive wait";
  EXPECT_EQ(resize_cq(scene.loop.cq.get(), 3), 0);
  EXPECT_EQ(scene.loop.next().wr_id, 4U);
  EXPECT_EQ(resize_cq(scene.loop.cq.get(), 200), 0);
  EXPECT_EQ(scene.loop.cq->cqe, 200);
  std::vector<std::uint64_t> left = {scene.loop.next().wr_id, scene.loop.next().wr_id};
  std::ranges::sort(left);
  EXPECT_EQ(left, (std::vector<std::uint64_t>{5, 6}));
  EXPECT_EQ(resize_cq(scene.loop.cq.get(), 0), EINVAL);
  EXPECT_EQ(resize_cq(scene.loop.cq.get(), 1 << 30), EINVAL);
  EXPECT_EQ(scene.loop.cq->cqe, 200);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
