// Shared receive queues: the receive that a message takes, and that no receive is lost if the queue pair that took it
// ends.
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "softdev/local/two_processes.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::uint32_t kSrqDepth = 12;  // not a power of two

/// A node with a shared receive queue and memory for its receives.
struct SrqReceiver {
  Node node;
  Memory memory{node, 1 << 16};
  verbs::SrqHandle srq;
  std::vector<std::unique_ptr<Qp>> qps;

  SrqReceiver() {
    ibv_srq_init_attr init{};
    init.attr = {kSrqDepth, 2, 0};
    srq = verbs::SrqHandle(api(), api().create_srq(node.pd.get(), &init));
  }
  Qp& add(ibv_qp_type type = IBV_QPT_RC) {
    return *qps.emplace_back(std::make_unique<Qp>(node, QpSettings{.type = type, .srq = srq.get()}));
  }
  int post(std::uint64_t id, ibv_sge slice) { return post_shared_receive(srq.get(), id, slice); }
  /// Each id has its own place in the memory.
  int post(std::uint64_t id, std::uint32_t bytes = 1024) { return post(id, memory.slice(id * 1024, bytes)); }
  /// Number of receives that can still be posted: places that are neither posted, nor in use, nor unpolled.
  std::uint32_t free_entries() {
    std::uint32_t count = 0;
    while (post(count % 32) == 0) ++count;
    return count;
  }
};

/// A sender for each queue pair of a receiver.
struct Senders {
  Node node;
  Memory memory{node, 1 << 16};
  std::vector<std::unique_ptr<Qp>> qps;

  Senders(SrqReceiver& receiver, int count, ibv_qp_type type = IBV_QPT_RC) {
    for (int i = 0; i < count; ++i) {
      Qp& target = receiver.add(type);
      Qp& sender = *qps.emplace_back(std::make_unique<Qp>(node, QpSettings{.type = type}));
      sender.connect_to(target.number());
      target.connect_to(sender.number());
    }
    memory.fill(9);
  }
};

TEST(Srq, MessagesOfAllQueuePairsTakeReceivesInOrder) {
  SrqReceiver receiver;
  Senders senders(receiver, 3);
  for (std::uint64_t id = 0; id < kSrqDepth; ++id) ASSERT_EQ(receiver.post(id), 0);
  EXPECT_EQ(receiver.post(0), ENOMEM);
  for (std::uint64_t id = 0; id < kSrqDepth; ++id) {
    // Lengths that fit into the slot, that do not, and that are copied directly into the receive.
    const std::uint32_t sizes[] = {8, SharedReceive::kEagerBytes, SharedReceive::kEagerBytes + 1, 1000};
    const std::uint32_t bytes = sizes[id % 4];
    const std::size_t via = id % 3;
    ASSERT_EQ(senders.qps[via]->post(send_request(id), senders.memory.slice(id, bytes)), 0);
    EXPECT_EQ(senders.qps[via]->next().status, IBV_WC_SUCCESS);
    const ibv_wc received = receiver.qps[via]->next();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.wr_id, id);
    EXPECT_EQ(received.byte_len, bytes);
    EXPECT_EQ(received.qp_num, receiver.qps[via]->number());
    EXPECT_EQ(std::memcmp(receiver.memory.data + id * 1024, senders.memory.data + id, bytes), 0);
  }
  EXPECT_EQ(receiver.free_entries(), kSrqDepth);
}

TEST(Srq, EntriesMayReturnInAnyOrder) {
  SrqReceiver receiver;
  Senders senders(receiver, 2);
  for (int round = 0; round < 50; ++round) {
    for (std::uint64_t id = 0; id < kSrqDepth; ++id) ASSERT_EQ(receiver.post(id), 0) << round;
    for (std::uint64_t id = 0; id < kSrqDepth; ++id) {
      ASSERT_EQ(senders.qps[id % 2]->post(send_request(id), senders.memory.slice(0, 16)), 0);
      EXPECT_EQ(senders.qps[id % 2]->next().status, IBV_WC_SUCCESS);
    }
    for (const std::size_t via : {1U, 0U}) {  // polls the second queue pair first
      for (std::uint64_t id = via; id < kSrqDepth; id += 2) EXPECT_EQ(receiver.qps[via]->next().wr_id, id);
    }
  }
}

TEST(Srq, AnEmptyQueueMeansReceiverNotReady) {
  SrqReceiver receiver;
  Senders senders(receiver, 1);
  ASSERT_EQ(senders.qps[0]->post(send_request(1), senders.memory.slice(0, 8)), 0);
  EXPECT_TRUE(senders.qps[0]->poll().empty());
  ASSERT_EQ(receiver.post(5), 0);
  EXPECT_EQ(senders.qps[0]->next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(receiver.qps[0]->next().wr_id, 5U);
}

TEST(Srq, WriteWithImmediateTakesAReceiveToo) {
  SrqReceiver receiver;
  Senders senders(receiver, 1);
  ASSERT_EQ(receiver.post(3), 0);
  ibv_send_wr write = rdma_request(IBV_WR_RDMA_WRITE_WITH_IMM, 1, receiver.memory.address(), receiver.memory.mr->rkey);
  ASSERT_EQ(senders.qps[0]->post(write, senders.memory.slice(0, 100)), 0);
  const ibv_wc received = receiver.qps[0]->next();
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(received.wr_id, 3U);
  EXPECT_EQ(receiver.free_entries(), kSrqDepth);
}

TEST(Srq, AMessageThatIsDroppedLeavesItsReceiveToTheNext) {
  SrqReceiver receiver;
  Senders senders(receiver, 1, IBV_QPT_UC);
  ASSERT_EQ(receiver.post(3), 0);
  ibv_send_wr wrong = rdma_request(IBV_WR_RDMA_WRITE_WITH_IMM, 1, receiver.memory.address(), 12345);
  ASSERT_EQ(senders.qps[0]->post(wrong, senders.memory.slice(0, 100)), 0);
  EXPECT_TRUE(receiver.qps[0]->poll().empty());
  ASSERT_EQ(senders.qps[0]->post(send_request(2), senders.memory.slice(0, 8)), 0);
  EXPECT_EQ(receiver.qps[0]->next().wr_id, 3U);
}

TEST(Srq, TooLongAndDeregisteredAreErrorsAsOnAQueuePair) {
  SrqReceiver receiver;
  Senders senders(receiver, 2);
  ASSERT_EQ(receiver.post(0, 4), 0);
  ASSERT_EQ(senders.qps[0]->post(send_request(1), senders.memory.slice(0, 8)), 0);
  EXPECT_EQ(senders.qps[0]->next().status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(receiver.qps[0]->next().status, IBV_WC_LOC_LEN_ERR);

  Memory given_up(receiver.node);
  ASSERT_EQ(receiver.post(1, given_up.slice(0, 1024)), 0);
  given_up.mr.reset();
  ASSERT_EQ(senders.qps[1]->post(send_request(1), senders.memory.slice(0, 8)), 0);
  EXPECT_EQ(senders.qps[1]->next().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(receiver.qps[1]->next().status, IBV_WC_LOC_PROT_ERR);
}

TEST(Srq, TheLastReceiveOfAQueuePairInErrorIsAnEvent) {
  SrqReceiver receiver;
  Senders senders(receiver, 1);
  ASSERT_EQ(receiver.post(0), 0);
  ASSERT_EQ(receiver.qps[0]->to_state(IBV_QPS_ERR), 0);
  ibv_async_event event{};
  ASSERT_EQ(api().get_async_event(receiver.node.context.get(), &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, receiver.qps[0]->qp.get());
  api().ack_async_event(&event);
  EXPECT_TRUE(receiver.qps[0]->poll().empty()) << "the receive belongs to the others";
}

TEST(Srq, UnpolledReceivesReturnWithTheQueuePair) {
  for (const bool destroy : {true, false}) {
    SrqReceiver receiver;
    Senders senders(receiver, 1);
    for (std::uint64_t id = 0; id < 5; ++id) ASSERT_EQ(receiver.post(id), 0);
    for (std::uint64_t id = 0; id < 3; ++id) {
      ASSERT_EQ(senders.qps[0]->post(send_request(id), senders.memory.slice(0, 8)), 0);
      EXPECT_EQ(senders.qps[0]->next().status, IBV_WC_SUCCESS);
    }
    if (destroy) {
      receiver.qps[0]->qp.reset();
    } else {
      ASSERT_EQ(receiver.qps[0]->to_state(IBV_QPS_RESET), 0);
    }
    EXPECT_EQ(receiver.free_entries(), kSrqDepth - 2);
  }
}

TEST(Srq, LimitsAreChecked) {
  SrqReceiver receiver;
  Qp& qp = receiver.add();
  ibv_srq_attr attributes{};
  ASSERT_EQ(api().query_srq(receiver.srq.get(), &attributes), 0);
  EXPECT_EQ(attributes.max_wr, kSrqDepth);
  EXPECT_EQ(attributes.max_sge, 2U);
  EXPECT_EQ(attributes.srq_limit, 0U);
  attributes.srq_limit = kSrqDepth;
  EXPECT_EQ(api().modify_srq(receiver.srq.get(), &attributes, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(api().query_srq(receiver.srq.get(), &attributes), 0);
  EXPECT_EQ(attributes.srq_limit, kSrqDepth);
  attributes.srq_limit = kSrqDepth + 1;
  EXPECT_EQ(api().modify_srq(receiver.srq.get(), &attributes, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(api().modify_srq(receiver.srq.get(), &attributes, IBV_SRQ_MAX_WR), EOPNOTSUPP);

  EXPECT_EQ(qp.to_init(), 0);
  EXPECT_EQ(qp.post_recv(receiver.memory.slice(0, 8), 1), EINVAL) << "it has no receives of its own";
  EXPECT_EQ(api().destroy_srq(receiver.srq.get()), EBUSY);
  std::vector<ibv_sge> slices(3, receiver.memory.slice(0, 8));
  ibv_recv_wr wr{};
  wr.sg_list = slices.data();
  wr.num_sge = 3;
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(receiver.srq.get(), &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);

  const auto refused = [&receiver](ibv_srq_attr wanted) {
    ibv_srq_init_attr init{};
    init.attr = wanted;
    errno = 0;
    EXPECT_EQ(api().create_srq(receiver.node.pd.get(), &init), nullptr);
    EXPECT_EQ(errno, EINVAL);
  };
  refused({0, 1, 0});
  refused({1U << 20, 1, 0});
  refused({8, 1000, 0});
}

/// Threads send over queue pairs of their own. Each message arrives once, in the receive that its completion names.
TEST(Srq, ManySendersAtATime) {
  constexpr int kSenders = 4;
  constexpr std::uint32_t kMessages = 500;
  SrqReceiver receiver;
  std::vector<std::unique_ptr<Senders>> senders;  // each with its own device, like processes
  for (int by = 0; by < kSenders; ++by) senders.push_back(std::make_unique<Senders>(receiver, 1));
  for (std::uint64_t id = 0; id < kSrqDepth; ++id) ASSERT_EQ(receiver.post(id), 0);
  std::vector<std::thread> threads;
  for (std::uint32_t by = 0; by < kSenders; ++by) {
    threads.emplace_back([&senders, by] {
      Qp& qp = *senders[by]->qps[0];
      const Memory& memory = senders[by]->memory;
      for (std::uint32_t number = 0; number < kMessages; ++number) {
        // Short and long messages; the first 8 bytes have the sender and the number.
        const std::uint32_t words[] = {by, number};
        std::memcpy(memory.data, words, sizeof(words));
        ASSERT_EQ(qp.post(send_request(number), memory.slice(0, number % 2 == 0 ? 8 : 500)), 0);
        ASSERT_EQ(qp.next().status, IBV_WC_SUCCESS);
      }
    });
  }
  std::vector<std::uint32_t> seen(kSenders, 0);
  for (std::uint32_t received = 0; received < kSenders * kMessages;) {
    for (std::uint32_t by = 0; by < kSenders; ++by) {
      for (const ibv_wc& wc : receiver.qps[by]->poll()) {
        std::uint32_t words[2];
        std::memcpy(words, receiver.memory.data + wc.wr_id * 1024, sizeof(words));
        EXPECT_EQ(words[0], by);
        EXPECT_EQ(words[1], seen[by]++);
        ++received;
        ASSERT_EQ(receiver.post(wc.wr_id), 0);
      }
    }
  }
  for (std::thread& thread : threads) thread.join();
}

/// A process that is killed while it sends must neither block other senders nor make receives disappear.
TEST(Srq, AnInitiatorKilledInTheMiddleLeavesTheQueueUsable) {
  for (int round = 0; round < 20; ++round) {
    Child child([](Line line) {
      Node node;
      Qp qp(node);
      Memory memory(node);
      introduce(line, qp, memory);
      for (;;) {
        (void)qp.post(send_request(1), memory.slice(0, 8));
        (void)qp.poll();
      }
    });
    SrqReceiver receiver;
    Senders other(receiver, 1);
    Qp& target = receiver.add();
    for (std::uint64_t id = 0; id < kSrqDepth; ++id) ASSERT_EQ(receiver.post(id), 0);
    introduce(child.line(), target, receiver.memory);
    for (int i = 0; i < 200 + round * 50; ++i) {
      for (const ibv_wc& wc : target.poll()) ASSERT_EQ(receiver.post(wc.wr_id), 0);
    }
    child.kill();
    receiver.qps.pop_back();  // the target, with taken and unpolled receives
    (void)receiver.free_entries();
    for (std::uint32_t message = 0; message < kSrqDepth; ++message) {  // each entry can be taken
      ASSERT_EQ(other.qps[0]->post(send_request(1), other.memory.slice(0, 8)), 0);
      ASSERT_EQ(other.qps[0]->next().status, IBV_WC_SUCCESS) << message;
    }
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
