// XRC: one connection to a process reaches all shared receive queues of its domain. Each message is received by the
// queue that it names.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/local/dead_initiator.h"
#include "softdev/local/two_processes.h"
#include "softdev/queues/xrc_scene.h"
#include "softdev/shared/layout.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

// ---- Domains

TEST(XrcDomain, TheDeviceReportsThem) {
  Node node;
  ibv_device_attr attributes{};
  ASSERT_EQ(api().query_device(node.context.get(), &attributes), 0);
  EXPECT_NE(attributes.device_cap_flags & IBV_DEVICE_XRC, 0U);
}

TEST(XrcDomain, OpeningIsRefused) {
  Node node;
  const UniqueFd file = nameless_file();
  const auto refused = [&node](int fd, int flags, std::uint32_t mask, int error) {
    EXPECT_EQ(open_domain(node, fd, flags, mask), nullptr);
    EXPECT_EQ(errno, error);
  };
  constexpr std::uint32_t kBoth = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  refused(-1, O_CREAT, IBV_XRCD_INIT_ATTR_FD, EINVAL);
  refused(-1, O_CREAT, IBV_XRCD_INIT_ATTR_OFLAGS, EINVAL);
  refused(-1, O_CREAT, kBoth | IBV_XRCD_INIT_ATTR_RESERVED, EOPNOTSUPP);
  refused(-1, 0, kBoth, EINVAL);
  refused(1 << 20, O_CREAT, kBoth, EBADF);
  refused(file.get(), 0, kBoth, EAGAIN);  // does not exist yet
  const Domain domain(node, file.get());
  refused(file.get(), O_CREAT | O_EXCL, kBoth, EINVAL);  // exists already
}

TEST(XrcDomain, OneFileIsOneDomainUntilItsLastUserClosesIt) {
  Node first;
  Node second;
  const UniqueFd file = nameless_file();
  ibv_xrcd* const made = open_domain(first, file.get(), O_CREAT | O_EXCL);
  ASSERT_NE(made, nullptr);
  ibv_xrcd* const found = open_domain(second, file.get(), 0);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(ibv_close_xrcd(made), 0);
  EXPECT_EQ(open_domain(first, file.get(), O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(ibv_close_xrcd(found), 0);
  ibv_xrcd* const again = open_domain(first, file.get(), O_CREAT | O_EXCL);
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(ibv_close_xrcd(again), 0);
}

TEST(XrcDomain, OfSeveralCreatorsExactlyOneSucceeds) {
  constexpr int kMakers = 8;
  constexpr int kTimes = 20;
  const UniqueFd file = nameless_file();
  std::vector<std::unique_ptr<Node>> nodes;
  for (int i = 0; i < kMakers; ++i) nodes.push_back(std::make_unique<Node>());
  for (int time = 0; time < kTimes; ++time) {
    std::array<ibv_xrcd*, kMakers> made{};
    std::barrier begin(kMakers);
    std::vector<std::thread> makers;
    for (std::size_t i = 0; i < kMakers; ++i) {
      makers.emplace_back([&, i] {
        begin.arrive_and_wait();
        made[i] = open_domain(*nodes[i], file.get(), O_CREAT | O_EXCL);
      });
    }
    for (std::thread& maker : makers) maker.join();
    EXPECT_EQ(std::ranges::count_if(made, [](const ibv_xrcd* one) { return one != nullptr; }), 1);
    for (ibv_xrcd* const one : made) EXPECT_TRUE(one == nullptr || ibv_close_xrcd(one) == 0);
  }
}

TEST(XrcDomain, EndsWithItsProcess) {
  const UniqueFd file = nameless_file();
  Child child([&file](Line line) {
    Node node;
    ASSERT_NE(open_domain(node, file.get(), O_CREAT), nullptr);
    line.send({});
    (void)line.receive();  // until it is killed
  });
  (void)child.line().receive();
  Node node;
  ibv_xrcd* const found = open_domain(node, file.get(), 0);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(ibv_close_xrcd(found), 0);
  child.kill();
  EXPECT_EQ(open_domain(node, file.get(), 0), nullptr);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(XrcDomain, IsNotClosedWhileItIsUsed) {
  Node node;
  ibv_xrcd* const xrcd = open_domain(node, -1, O_CREAT);
  auto receiver = std::make_unique<Qp>(node, of_type(IBV_QPT_XRC_RECV, xrcd));
  EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
  receiver.reset();
  const verbs::CqHandle cq(api(), api().create_cq(node.context.get(), 16, nullptr, nullptr, 0));
  ibv_srq_init_attr_ex init = srq_wanted(node, xrcd, cq.get());
  verbs::SrqHandle srq(api(), ibv_create_srq_ex(node.context.get(), &init));
  ASSERT_NE(srq.get(), nullptr);
  EXPECT_EQ(ibv_close_xrcd(xrcd), EBUSY);
  EXPECT_EQ(api().destroy_cq(cq.get()), EBUSY);
  EXPECT_EQ(api().dealloc_pd(node.pd.get()), EBUSY);
  srq.reset();
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

TEST(XrcDomain, ADeviceClosesWithItsRemainingObjects) {
  const UniqueFd file = nameless_file();
  {
    const verbs::DeviceList list(api());
    ibv_context* const context = api().open_device(list[0]);
    ibv_xrcd_init_attr init{IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, file.get(), O_CREAT};
    // As with a NIC, its memory is then lost. It stays reachable here, so that the leak sanitizer does not report it.
    static ibv_xrcd* left_behind = nullptr;
    left_behind = ibv_open_xrcd(context, &init);
    ASSERT_NE(left_behind, nullptr);
    EXPECT_EQ(api().close_device(context), 0);
  }
  Node node;
  EXPECT_EQ(open_domain(node, file.get(), 0), nullptr) << "nobody has it open any more";
}

// ---- Queues and queue pairs

TEST(Xrc, QueuesThatAreRefused) {
  Node node;
  const Domain domain(node);
  const verbs::CqHandle cq(api(), api().create_cq(node.context.get(), 16, nullptr, nullptr, 0));
  const auto refused = [&](auto change, int error) {
    ibv_srq_init_attr_ex init = srq_wanted(node, domain.xrcd, cq.get());
    change(init);
    errno = 0;
    EXPECT_EQ(ibv_create_srq_ex(node.context.get(), &init), nullptr);
    EXPECT_EQ(errno, error);
  };
  using Init = ibv_srq_init_attr_ex;
  refused([](Init& init) { init.comp_mask &= ~static_cast<unsigned>(IBV_SRQ_INIT_ATTR_PD); }, EINVAL);
  refused([](Init& init) { init.comp_mask &= ~static_cast<unsigned>(IBV_SRQ_INIT_ATTR_XRCD); }, EINVAL);
  refused([](Init& init) { init.comp_mask &= ~static_cast<unsigned>(IBV_SRQ_INIT_ATTR_CQ); }, EINVAL);
  refused([](Init& init) { init.srq_type = IBV_SRQT_BASIC; }, EINVAL);
  refused([](Init& init) { init.srq_type = IBV_SRQT_TM; }, EOPNOTSUPP);
  refused([](Init& init) { init.comp_mask |= IBV_SRQ_INIT_ATTR_TM; }, EOPNOTSUPP);
  refused([](Init& init) { init.attr.max_wr = 0; }, EINVAL);
  refused([](Init& init) { init.attr.max_sge = 1000; }, EINVAL);

  ibv_srq_init_attr basic{nullptr, {4, 1, 0}};
  const verbs::SrqHandle srq(api(), api().create_srq(node.pd.get(), &basic));
  std::uint32_t number = 0;
  EXPECT_EQ(ibv_get_srq_num(srq.get(), &number), EINVAL) << "only XRC ones have a number";
}

TEST(Xrc, QueuePairsThatAreRefused) {
  Node node;
  const Domain domain(node);
  const verbs::CqHandle cq(api(), api().create_cq(node.context.get(), 16, nullptr, nullptr, 0));
  ibv_srq_init_attr plain{nullptr, {4, 1, 0}};
  const verbs::SrqHandle srq(api(), api().create_srq(node.pd.get(), &plain));
  const auto refused = [&](ibv_qp_type type, unsigned mask, ibv_srq* with, int error) {
    ibv_qp_init_attr_ex init{};
    init.qp_type = type;
    init.comp_mask = mask;
    init.pd = node.pd.get();
    init.xrcd = domain.xrcd;
    init.send_cq = init.recv_cq = cq.get();
    init.srq = with;
    errno = 0;
    EXPECT_EQ(create_qp_ex(node.context.get(), &init), nullptr) << type << " " << mask;
    EXPECT_EQ(errno, error) << type << " " << mask;
  };
  refused(IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_PD, nullptr, EINVAL);
  refused(IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD, srq.get(), EINVAL);
  refused(IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, nullptr, EINVAL);
  refused(IBV_QPT_XRC_RECV, IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_RX_HASH, nullptr, EOPNOTSUPP);
  refused(IBV_QPT_XRC_SEND, IBV_QP_INIT_ATTR_XRCD, nullptr, EINVAL);
  refused(IBV_QPT_XRC_SEND, IBV_QP_INIT_ATTR_PD, srq.get(), EINVAL);
  refused(IBV_QPT_RC, IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD, nullptr, EINVAL);
}

TEST(Xrc, EachDirectionNeedsItsOwnAttributes) {
  Node node;
  const Domain domain(node);
  Qp sender(node, of_type(IBV_QPT_XRC_SEND));
  Qp receiver(node, of_type(IBV_QPT_XRC_RECV, domain.xrcd));
  ASSERT_EQ(sender.to_init(), 0);
  ASSERT_EQ(receiver.to_init(), 0);
  receiver.settings.type = IBV_QPT_XRC_SEND;  // lacks attributes that only a receiver has
  EXPECT_EQ(receiver.to_rtr(sender.number()), EINVAL);
  receiver.settings.type = IBV_QPT_XRC_RECV;
  ASSERT_EQ(sender.to_rtr(receiver.number()), 0);
  ASSERT_EQ(receiver.to_rtr(sender.number()), 0);
  sender.settings.type = IBV_QPT_XRC_RECV;
  EXPECT_EQ(sender.to_rts(), EINVAL);
  sender.settings.type = IBV_QPT_XRC_SEND;
  EXPECT_EQ(sender.to_rts(), 0);
  EXPECT_EQ(receiver.to_rts(), 0);
  EXPECT_EQ(state_of(sender), IBV_QPS_RTS);
  EXPECT_EQ(state_of(receiver), IBV_QPS_RTS);
}

TEST(Xrc, AttributesOfTheOtherDirectionAreIgnored) {
  Node node;
  const Domain domain(node);
  Qp sender(node, of_type(IBV_QPT_XRC_SEND));
  Qp receiver(node, of_type(IBV_QPT_XRC_RECV, domain.xrcd));
  for (Qp* const qp : {&sender, &receiver}) {
    const ibv_qp_type own = qp->settings.type;
    ASSERT_EQ(qp->to_init(), 0);
    qp->settings.type = IBV_QPT_RC;  // an RC queue pair has the attributes of both
    EXPECT_EQ(qp->to_rtr(sender.number()), 0);
    EXPECT_EQ(qp->to_rts(), 0);
    qp->settings.type = own;
    EXPECT_EQ(state_of(*qp), IBV_QPS_RTS);
  }
}

TEST(Xrc, EachDirectionAcceptsOnlyItsOwnRequests) {
  Scene scene;
  EXPECT_EQ(scene.sender.post_recv(scene.from.slice(0, 8), 1), EINVAL);
  EXPECT_EQ(scene.receiver.post_recv(scene.to.slice(0, 8), 1), EINVAL);
  EXPECT_EQ(scene.receiver.post(send_request(1), scene.to.slice(0, 8)), EINVAL);
}

// ---- Messages

TEST(Xrc, MessagesTakeTheReceivesOfTheQueueThatTheyNameInOrder) {
  Scene scene;
  Queue other(scene.b, scene.domain);
  for (std::uint64_t id = 0; id < kDepth; ++id) {
    ASSERT_EQ(scene.queue.post(id, scene.to.slice(id * 1024, 1024)), 0);
    ASSERT_EQ(other.post(100 + id, scene.to.slice((id + kDepth) * 1024, 1024)), 0);
  }
  EXPECT_EQ(scene.queue.post(0, scene.to.slice(0, 1)), ENOMEM);
  for (std::uint64_t id = 0; id < kDepth; ++id) {
    // Lengths that fit into the slot, that do not, and that are copied directly into the receive.
    const std::uint32_t sizes[] = {0, 8, XrcRoute::kEagerBytes, XrcRoute::kEagerBytes + 1, 1000};
    const std::uint32_t bytes = sizes[id % 5];
    for (Queue* const queue : {&scene.queue, &other}) {
      ASSERT_EQ(scene.send(bytes, queue->number()), 0);
      const ibv_wc sent = scene.sender.next();
      EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
      EXPECT_EQ(sent.opcode, IBV_WC_SEND);
      EXPECT_EQ(sent.qp_num, scene.sender.number());
      const ibv_wc received = queue->next();
      EXPECT_EQ(received.status, IBV_WC_SUCCESS);
      EXPECT_EQ(received.opcode, IBV_WC_RECV);
      EXPECT_EQ(received.wr_id, queue == &other ? 100 + id : id);
      EXPECT_EQ(received.byte_len, bytes);
      EXPECT_EQ(received.qp_num, scene.receiver.number());
      EXPECT_EQ(received.src_qp, scene.sender.number());
      const std::size_t at = (queue == &other ? id + kDepth : id) * 1024;
      EXPECT_EQ(std::memcmp(scene.to.data + at, scene.from.data, bytes), 0);
    }
  }
  EXPECT_TRUE(scene.queue.poll().empty());
  EXPECT_TRUE(other.poll().empty());
}

TEST(Xrc, WriteReadAndAtomicsAccessTheQueuesMemory) {
  Scene scene;
  const std::uint32_t number = scene.queue.number();
  const std::uint32_t key = scene.to.mr->rkey;
  const auto done = [&](ibv_send_wr wr, std::size_t offset, std::uint32_t bytes) {
    ASSERT_EQ(scene.sender.post(to_queue(number, wr), scene.from.slice(offset, bytes)), 0);
    ASSERT_EQ(scene.sender.next().status, IBV_WC_SUCCESS);
  };
  done(rdma_request(IBV_WR_RDMA_WRITE, 1, scene.to.address(), key), 0, 5000);
  EXPECT_EQ(std::memcmp(scene.to.data, scene.from.data, 5000), 0);
  done(rdma_request(IBV_WR_RDMA_READ, 2, scene.to.address(), key), 10'000, 5000);
  EXPECT_EQ(std::memcmp(scene.from.data + 10'000, scene.from.data, 5000), 0);
  std::uint64_t word = 5;
  std::memcpy(scene.to.data, &word, sizeof(word));
  done(atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 3, scene.to.address(), key, 10), 20'000, 8);
  std::memcpy(&word, scene.to.data, sizeof(word));
  EXPECT_EQ(word, 15U);
  done(atomic_request(IBV_WR_ATOMIC_CMP_AND_SWP, 4, scene.to.address(), key, 15, 99), 20'000, 8);
  std::memcpy(&word, scene.from.data + 20'000, sizeof(word));
  EXPECT_EQ(word, 15U);

  ASSERT_EQ(scene.queue.post(31, scene.to.slice(0, 0)), 0);
  ibv_send_wr write = rdma_request(IBV_WR_RDMA_WRITE_WITH_IMM, 5, scene.to.address(8), key);
  write.imm_data = htonl(77);
  done(write, 0, 3000);
  const ibv_wc received = scene.queue.next();
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.wr_id, 31U);
  EXPECT_EQ(received.imm_data, htonl(77));
  EXPECT_EQ(received.qp_num, scene.receiver.number());
  EXPECT_EQ(std::memcmp(scene.to.data + 8, scene.from.data, 3000), 0);
}

TEST(Xrc, RequestsByCallsNameTheirQueue) {
  Scene scene;
  ibv_qp_init_attr_ex init{};
  init.send_cq = scene.sender.cq.get();
  init.cap = {4, 0, 1, 0, 0};
  init.qp_type = IBV_QPT_XRC_SEND;
  init.sq_sig_all = 1;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = scene.a.pd.get();
  init.send_ops_flags = IBV_QP_EX_WITH_SEND;
  scene.sender.qp = verbs::QpHandle(api(), ibv_create_qp_ex(scene.a.context.get(), &init));
  ASSERT_EQ(scene.receiver.to_state(IBV_QPS_RESET), 0);
  Scene::connect(scene.sender, scene.receiver);
  ASSERT_EQ(scene.queue.post(4, scene.to.slice(0, 100)), 0);
  ibv_qp_ex* const calls = reinterpret_cast<ibv_qp_ex*>(scene.sender.qp.get());
  const ibv_sge slice = scene.from.slice(0, 100);
  ibv_wr_start(calls);
  calls->wr_id = 6;
  ibv_wr_send(calls);
  ibv_wr_set_xrc_srqn(calls, scene.queue.number());
  ibv_wr_set_sge(calls, slice.lkey, slice.addr, slice.length);
  ASSERT_EQ(ibv_wr_complete(calls), 0);
  EXPECT_EQ(scene.sender.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.queue.next().wr_id, 4U);

  ibv_wr_start(calls);
  ibv_wr_set_xrc_srqn(calls, scene.queue.number());  // belongs to no request
  EXPECT_EQ(ibv_wr_complete(calls), EINVAL);
}

TEST(Xrc, WakesAThreadThatSleepsOnTheQueuesCompletions) {
  Scene scene;
  ASSERT_EQ(scene.queue.post(1, scene.to.slice(0, 100)), 0);
  ASSERT_EQ(ibv_req_notify_cq(scene.queue.cq.get(), 0), 0);
  ASSERT_EQ(scene.send(100), 0);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  ASSERT_EQ(api().get_cq_event(scene.queue.channel.get(), &cq, &context), 0);
  EXPECT_EQ(cq, scene.queue.cq.get());
  api().ack_cq_events(cq, 1);
  EXPECT_EQ(scene.queue.next().wr_id, 1U);
}

TEST(Xrc, TheLimitOfAQueueIsAnEvent) {
  Scene scene;
  for (std::uint64_t id = 0; id < 3; ++id) ASSERT_EQ(scene.queue.post(id, scene.to.slice(0, 100)), 0);
  ibv_srq_attr attributes{};
  attributes.srq_limit = 2;
  ASSERT_EQ(api().modify_srq(scene.queue.srq.get(), &attributes, IBV_SRQ_LIMIT), 0);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(scene.send(8), 0);
  ibv_async_event event{};
  ASSERT_EQ(api().get_async_event(scene.b.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, scene.queue.srq.get());
  api().ack_async_event(&event);
}

// ---- Failures

TEST(Xrc, AnEmptyQueueMeansReceiverNotReady) {
  Scene scene;
  ASSERT_EQ(scene.send(8), 0);
  EXPECT_TRUE(scene.sender.poll().empty());
  ASSERT_EQ(scene.queue.post(5, scene.to.slice(0, 100)), 0);
  EXPECT_EQ(scene.sender.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.queue.next().wr_id, 5U);

  QpSettings impatient;
  impatient.rnr_retry = 1;
  Scene other(impatient);
  ASSERT_EQ(other.send(8), 0);
  EXPECT_EQ(other.sender.next().status, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST(Xrc, TheNumberOfAQueuePairFailsBothEnds) {
  Scene scene;
  const std::uint32_t nobody = scene.receiver.number();  // the number of a queue pair
  ASSERT_EQ(scene.send(8, nobody), 0);
  scene.expect_failed(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  EXPECT_TRUE(scene.queue.poll().empty());
}

TEST(Xrc, AnUnusedNumberFailsBothEnds) {
  Scene scene;
  ASSERT_EQ(scene.send(8, 1), 0);
  scene.expect_failed(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

TEST(Xrc, AQueueOfAnotherDomainFailsBothEnds) {
  Scene scene;
  const Domain elsewhere(scene.b);
  Queue queue(scene.b, elsewhere);
  ASSERT_EQ(queue.post(1, scene.to.slice(0, 100)), 0);
  ASSERT_EQ(scene.send(8, queue.number()), 0);
  scene.expect_failed(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  EXPECT_TRUE(queue.poll().empty());
}

TEST(Xrc, ADestroyedQueueFailsBothEnds) {
  Scene scene;
  ASSERT_EQ(scene.queue.post(1, scene.to.slice(0, 100)), 0);
  ASSERT_EQ(scene.send(8), 0);
  EXPECT_EQ(scene.sender.next().status, IBV_WC_SUCCESS);
  const std::uint32_t number = scene.queue.number();
  scene.queue.srq.reset();
  ASSERT_EQ(scene.send(8, number), 0);
  scene.expect_failed(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
}

TEST(Xrc, AccessThatTheQueuePairDoesNotAllowIsRefused) {
  QpSettings nothing;
  nothing.access = 0;
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    Scene scene({}, nothing);
    ASSERT_EQ(scene.queue.post(1, scene.to.slice(0, 100)), 0);
    const auto wr = rdma_request(opcode, 1, scene.to.address(), scene.to.mr->rkey);
    ASSERT_EQ(scene.sender.post(to_queue(scene.queue.number(), wr), scene.from.slice(0, 8)), 0);
    scene.expect_failed(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
    EXPECT_TRUE(scene.queue.poll().empty());
  }
}

TEST(Xrc, TheQueuesProtectionDomainCounts) {
  Scene scene;
  const verbs::PdHandle other(api(), api().alloc_pd(scene.b.context.get()));
  const verbs::MrHandle mr(api(), api().reg_mr(other.get(), scene.to.data, scene.to.size, kAllRemote));
  const auto wr = rdma_request(IBV_WR_RDMA_WRITE, 1, scene.to.address(), mr->rkey);
  ASSERT_EQ(scene.sender.post(to_queue(scene.queue.number(), wr), scene.from.slice(0, 8)), 0);
  scene.expect_failed(IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR);
}

TEST(Xrc, AMessageThatIsTooLongFailsItsConnectionAlone) {
  Scene scene;
  Qp other_sender(scene.a, of_type(IBV_QPT_XRC_SEND));
  Qp other_receiver(scene.b, of_type(IBV_QPT_XRC_RECV, scene.domain.xrcd));
  Scene::connect(other_sender, other_receiver);
  ASSERT_EQ(scene.queue.post(1, scene.to.slice(0, 4)), 0);
  ASSERT_EQ(scene.queue.post(2, scene.to.slice(0, 100)), 0);
  ASSERT_EQ(scene.send(8), 0);
  scene.expect_failed(IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR);
  const ibv_wc failed = scene.queue.next();
  EXPECT_EQ(failed.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(failed.wr_id, 1U);
  EXPECT_EQ(failed.qp_num, scene.receiver.number());
  ASSERT_EQ(other_sender.post(to_queue(scene.queue.number(), send_request(1)), scene.from.slice(0, 8)), 0);
  EXPECT_EQ(other_sender.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.queue.next().wr_id, 2U);
  EXPECT_EQ(state_of(other_receiver), IBV_QPS_RTS);
}

TEST(Xrc, AReceiveInDeregisteredMemoryFailsItsConnectionAlone) {
  Scene scene;
  Memory given_up(scene.b);
  ASSERT_EQ(scene.queue.post(1, given_up.slice(0, 100)), 0);
  given_up.mr.reset();
  ASSERT_EQ(scene.send(8), 0);
  scene.expect_failed(IBV_WC_REM_OP_ERR, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(scene.queue.next().status, IBV_WC_LOC_PROT_ERR);

  // The message was already passed in the slot, so only the receiver gets the error.
  Scene late;
  Memory also(late.b);
  ASSERT_EQ(late.queue.post(1, also.slice(0, 100)), 0);
  ASSERT_EQ(late.send(8), 0);
  EXPECT_EQ(late.sender.next().status, IBV_WC_SUCCESS);
  also.mr.reset();
  EXPECT_EQ(late.queue.next().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(state_of(late.receiver), IBV_QPS_ERR);
  ASSERT_EQ(late.queue.post(2, late.to.slice(0, 100)), 0) << "the queue goes on";
}

TEST(Xrc, AnOverrunOfTheQueuesCompletionsEndsTheQueue) {
  Scene scene;
  Queue small(scene.b, scene.domain, 2);
  for (std::uint64_t id = 0; id < 4; ++id) ASSERT_EQ(small.post(id, scene.to.slice(0, 100)), 0);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(scene.send(8, small.number()), 0);
    ASSERT_EQ(scene.sender.next().status, IBV_WC_SUCCESS);
  }
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(small.cq.get(), 1, &wc), -1);
  ibv_async_event event{};
  ASSERT_EQ(api().get_async_event(scene.b.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  api().ack_async_event(&event);
  ASSERT_EQ(api().get_async_event(scene.b.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_ERR);
  EXPECT_EQ(event.element.srq, small.srq.get());
  api().ack_async_event(&event);
}

TEST(Xrc, QueuePairsOfOtherKindsAreNotConnected) {
  Scene scene;
  QpSettings brief;
  brief.timeout = 1;
  Qp reliable(scene.a, brief);
  Qp target(scene.b, of_type(IBV_QPT_XRC_RECV, scene.domain.xrcd));
  reliable.connect_to(target.number());
  target.connect_to(reliable.number());
  ASSERT_EQ(reliable.post(send_request(1), scene.from.slice(0, 8)), 0);
  EXPECT_EQ(reliable.next().status, IBV_WC_RETRY_EXC_ERR);

  Qp to_queue(scene.a, brief);  // messages to the queue do not arrive at a queue pair
  to_queue.connect_to(scene.queue.number());
  ASSERT_EQ(to_queue.post(send_request(1), scene.from.slice(0, 8)), 0);
  EXPECT_EQ(to_queue.next().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(Xrc, ConnectsAgainAfterReset) {
  Scene scene;
  ASSERT_EQ(scene.queue.post(1, scene.to.slice(0, 100)), 0);
  ASSERT_EQ(scene.queue.post(2, scene.to.slice(0, 100)), 0);
  ASSERT_EQ(scene.send(8), 0);
  EXPECT_EQ(scene.sender.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(scene.sender.to_state(IBV_QPS_RESET), 0);
  ASSERT_EQ(scene.receiver.to_state(IBV_QPS_RESET), 0);
  Scene::connect(scene.sender, scene.receiver);
  ASSERT_EQ(scene.send(8), 0);
  EXPECT_EQ(scene.sender.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.queue.next().wr_id, 1U) << "it has arrived, whatever became of its queue pair";
  EXPECT_EQ(scene.queue.next().wr_id, 2U);
}

// ---- ibv_open_qp

TEST(Xrc, AQueuePairIsOpenedByNumberAndEndsWithItsLastHandle) {
  Scene scene;
  ibv_qp_open_attr wanted{};
  wanted.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  wanted.qp_num = scene.receiver.number();
  wanted.xrcd = scene.domain.xrcd;
  wanted.qp_type = IBV_QPT_XRC_RECV;
  ibv_qp* const opened = ibv_open_qp(scene.b.context.get(), &wanted);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(opened->qp_num, scene.receiver.number());
  ASSERT_EQ(api().destroy_qp(opened), 0);
  ASSERT_EQ(scene.queue.post(1, scene.to.slice(0, 100)), 0);
  ASSERT_EQ(scene.send(8), 0);
  EXPECT_EQ(scene.sender.next().status, IBV_WC_SUCCESS) << "the other handle keeps it";

  const auto refused = [&scene](ibv_qp_open_attr attributes, int error) {
    errno = 0;
    EXPECT_EQ(ibv_open_qp(scene.b.context.get(), &attributes), nullptr);
    EXPECT_EQ(errno, error);
  };
  int other = 0;
  ibv_qp_open_attr wrong = wanted;
  wrong.comp_mask |= IBV_QP_OPEN_ATTR_RESERVED;
  refused(wrong, EOPNOTSUPP);
  wrong = wanted;
  wrong.comp_mask |= IBV_QP_OPEN_ATTR_CONTEXT;
  wrong.qp_context = &other;
  refused(wrong, EOPNOTSUPP);
  wrong = wanted;
  wrong.comp_mask &= ~static_cast<unsigned>(IBV_QP_OPEN_ATTR_XRCD);
  refused(wrong, EINVAL);
  wrong = wanted;
  wrong.qp_type = IBV_QPT_RC;
  refused(wrong, EINVAL);
  wrong = wanted;
  wrong.qp_num = scene.queue.number();
  refused(wrong, EINVAL);
  wrong = wanted;
  wrong.qp_num = scene.sender.number();  // of another context
  refused(wrong, EOPNOTSUPP);
  const Domain elsewhere(scene.b);
  wrong = wanted;
  wrong.xrcd = elsewhere.xrcd;
  refused(wrong, EINVAL);
}

// ---- Many senders at the same time, and other processes

/// Threads send to one queue over connections of their own. Each message arrives once, in order, with the number of its
/// connection.
TEST(Xrc, ManySendersAtATime) {
  constexpr std::uint32_t kSenders = 4;
  constexpr std::uint32_t kMessages = 300;
  Node node;
  const Domain domain(node);
  Memory memory(node, 1 << 16);
  Queue queue(node, domain);
  struct Side {
    Node node;
    Memory memory{node};
    Qp sender{node, of_type(IBV_QPT_XRC_SEND)};
  };
  std::vector<std::unique_ptr<Side>> sides;
  std::vector<std::unique_ptr<Qp>> receivers;
  for (std::uint32_t by = 0; by < kSenders; ++by) {
    sides.push_back(std::make_unique<Side>());
    receivers.push_back(std::make_unique<Qp>(node, of_type(IBV_QPT_XRC_RECV, domain.xrcd)));
    Scene::connect(sides[by]->sender, *receivers[by]);
  }
  for (std::uint64_t id = 0; id < kDepth; ++id) ASSERT_EQ(queue.post(id, memory.slice(id * 1024, 1024)), 0);
  const std::uint32_t number = queue.number();
  std::vector<std::thread> threads;
  for (std::uint32_t by = 0; by < kSenders; ++by) {
    threads.emplace_back([&side = *sides[by], by, number] {
      for (std::uint32_t message = 0; message < kMessages; ++message) {
        // Short and long messages; the first 8 bytes have the sender and the number.
        const std::uint32_t words[] = {by, message};
        std::memcpy(side.memory.data, words, sizeof(words));
        const ibv_sge slice = side.memory.slice(0, message % 2 == 0 ? 8 : 500);
        ASSERT_EQ(side.sender.post(to_queue(number, send_request(message)), slice), 0);
        ASSERT_EQ(side.sender.next().status, IBV_WC_SUCCESS);
      }
    });
  }
  std::vector<std::uint32_t> seen(kSenders, 0);
  for (std::uint32_t received = 0; received < kSenders * kMessages; ++received) {
    const ibv_wc wc = queue.next();
    std::uint32_t words[2];
    std::memcpy(words, memory.data + wc.wr_id * 1024, sizeof(words));
    ASSERT_LT(words[0], kSenders);
    EXPECT_EQ(words[1], seen[words[0]]++);
    EXPECT_EQ(wc.qp_num, receivers[words[0]]->number());
    ASSERT_EQ(queue.post(wc.wr_id, memory.slice(wc.wr_id * 1024, 1024)), 0);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Xrc, AReceiveThatADeadInitiatorHadTakenIsReused) {
  Scene scene;
  for (int i = 0; i < 20; ++i) {
    for (const bool had_let_go : {false, true}) {
      ASSERT_EQ(scene.queue.post(5, scene.to.slice(0, 100)), 0);
      die_at_work(scene.queue.number(), 77, [had_let_go](RemoteQp& target) {
        QpShared& shared = *target.view.shared;
        SrqShared& srq = *target.srq.shared;
        const std::uint32_t position = srq.taken.fetch_add(1);
        const std::uint32_t entry = target.srq.order[position & target.srq.mask].load();
        SharedReceive::entry(target.view.slot(shared.taken)) = entry;
        ++shared.taken;
        shared.claimed = had_let_go ? 0 : entry + 1;
      });
      ASSERT_EQ(scene.send(8), 0);
      EXPECT_EQ(scene.sender.next().status, IBV_WC_SUCCESS);
      EXPECT_EQ(scene.queue.next().wr_id, 5U);
    }
  }
}

/// A child: connects to its parent and sends messages of `bytes` to the queue whose number it gets.
void send_for_ever(Line line, std::uint32_t bytes) {
  Node node;
  Memory memory(node, bytes);
  memory.fill(3);
  Qp sender(node, of_type(IBV_QPT_XRC_SEND));
  line.send({sender.number(), 0, 0});
  const QueueInfo target = line.receive();
  sender.connect_to(target.qpn);
  line.send({});
  const std::uint32_t number = line.receive().qpn;
  for (;;) {
    (void)sender.post(to_queue(number, send_request(1)), memory.slice(0, bytes));
    (void)sender.poll();
  }
}

/// A process that is killed while it sends must neither block other senders nor make receives disappear.
void kill_in_the_middle(std::uint32_t bytes, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    Child child([bytes](Line line) { send_for_ever(line, bytes); });
    Scene scene;
    Memory into(scene.b, std::size_t{kDepth} * bytes);
    const auto receive = [&](std::uint64_t id) { return scene.queue.post(id, into.slice(id * bytes, bytes)); };
    Qp target(scene.b, of_type(IBV_QPT_XRC_RECV, scene.domain.xrcd));
    for (std::uint64_t id = 0; id < kDepth; ++id) ASSERT_EQ(receive(id), 0);
    target.connect_to(child.line().receive().qpn);
    child.line().send({target.number(), 0, 0});
    (void)child.line().receive();
    child.line().send({scene.queue.number(), 0, 0});
    for (int i = 0; i < 200 + round * 50; ++i) {
      for (const ibv_wc& wc : scene.queue.poll()) {
        EXPECT_EQ(wc.qp_num, target.number());
        EXPECT_EQ(wc.byte_len, bytes);
        ASSERT_EQ(receive(wc.wr_id), 0);
      }
    }
    child.kill();
    for (std::uint32_t message = 0; message < 2 * kDepth; ++message) {  // each receive can be taken, more than once
      ASSERT_EQ(scene.send(8), 0);
      bool sent = false;
      bool received = false;
      // By TCP, data that was sent before the end still arrives.
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while ((!sent || !received) && std::chrono::steady_clock::now() < end) {
        for (const ibv_wc& wc : scene.queue.poll()) {
          received = received || wc.qp_num == scene.receiver.number();
          ASSERT_EQ(receive(wc.wr_id), 0);
        }
        for (const ibv_wc& wc : scene.sender.poll()) sent = wc.status == IBV_WC_SUCCESS;
      }
      ASSERT_TRUE(sent && received) << message;
    }
  }
}

TEST(Xrc, AnInitiatorKilledInTheMiddleLeavesTheQueueUsable) {
  kill_in_the_middle(8, 20);
}

TEST(Xrc, AnInitiatorKilledInALongMessageLeavesTheQueueUsable) {
  kill_in_the_middle(300'000, 5);
}

/// A domain that belongs to a file: the connection belongs to one process, the queue to another.
TEST(Xrc, ADomainThatProcessesShare) {
  const UniqueFd file = nameless_file();
  Child owner([&file](Line line) {
    Node node;
    const Domain domain(node, file.get());
    Memory memory(node);
    Queue queue(node, domain);
    ASSERT_EQ(queue.post(8, memory.slice(0, 1024)), 0);
    line.send({queue.number(), memory.mr->rkey, memory.address(2048)});
    const ibv_wc received = queue.next();
    std::uint64_t word = 0;
    std::memcpy(&word, memory.data, sizeof(word));
    line.send({received.qp_num, 0, word});
    (void)line.receive();
  });
  const QueueInfo queue = owner.line().receive();
  Node node;
  ibv_xrcd* const xrcd = open_domain(node, file.get(), 0);
  ASSERT_NE(xrcd, nullptr);
  {
    Qp sender(node, of_type(IBV_QPT_XRC_SEND));
    Qp receiver(node, of_type(IBV_QPT_XRC_RECV, xrcd));
    Scene::connect(sender, receiver);
    Memory memory(node);
    memory.fill(1);
    std::uint64_t sent = 0;
    std::memcpy(&sent, memory.data, sizeof(sent));
    const auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, queue.address, queue.rkey);
    ASSERT_EQ(sender.post(to_queue(queue.qpn, write), memory.slice(0, 100)), 0);
    EXPECT_EQ(sender.next().status, IBV_WC_SUCCESS);
    const auto read = rdma_request(IBV_WR_RDMA_READ, 2, queue.address, queue.rkey);
    ASSERT_EQ(sender.post(to_queue(queue.qpn, read), memory.slice(1000, 100)), 0);
    EXPECT_EQ(sender.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(memory.data + 1000, memory.data, 100), 0);
    ASSERT_EQ(sender.post(to_queue(queue.qpn, send_request(3)), memory.slice(0, 8)), 0);
    EXPECT_EQ(sender.next().status, IBV_WC_SUCCESS);
    const QueueInfo received = owner.line().receive();
    EXPECT_EQ(received.qpn, receiver.number());
    EXPECT_EQ(received.address, sent);
    owner.line().send({});
  }
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
